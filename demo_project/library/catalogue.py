"""Find the source files of the running Python's standard library."""

import sysconfig
from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

TOP = "top-level"  # the shelf of modules that belong to no package
SKIPPED = {"__phello__", "__pycache__", "dist-packages", "idle_test", "lib2to3", "site-packages", "test", "tests"}


@dataclass(frozen=True)
class Source:
    """One module: its dotted name, the package that it stands in, its file."""

    name: str
    package: str
    path: Path

    def read(self) -> bytes:
        """Return the module's source."""
        return self.path.read_bytes()


@lru_cache(maxsize=1)
def sources() -> tuple[Source, ...]:
    """Return every module of the standard library but its tests, by name."""
    root = Path(sysconfig.get_path("stdlib"))
    found = (_source(root, path) for path in root.rglob("*.py"))
    return tuple(sorted((source for source in found if source), key=lambda source: source.name))


@lru_cache(maxsize=1)
def packages() -> dict[str, tuple[Source, ...]]:
    """Return the modules of each package, packages and modules by name."""
    shelves: dict[str, list[Source]] = defaultdict(list)
    for source in sources():
        shelves[source.package].append(source)
    return {name: tuple(shelves[name]) for name in sorted(shelves)}


def find(name: str) -> Source:
    """Return the module called `name`."""
    try:
        return _by_name()[name]
    except KeyError:
        raise LookupError(f"No module {name!r} in the standard library; `catalogue.sources()` lists them.") from None


@lru_cache(maxsize=1)
def _by_name() -> dict[str, Source]:
    return {source.name: source for source in sources()}


def _source(root: Path, path: Path) -> Source | None:
    """Describe the file at `path`, or nothing when it is not a module that can be imported by its dotted name."""
    parts = path.relative_to(root).with_suffix("").parts
    if SKIPPED.intersection(parts) or not all(part.isidentifier() for part in parts):
        return None
    package = parts[0] if len(parts) > 1 else TOP
    return Source(".".join(parts[:-1] if parts[-1] == "__init__" else parts), package, path)
