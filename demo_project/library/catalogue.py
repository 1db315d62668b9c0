"""The source files of the running Python's standard library."""

import os
import sysconfig
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

TOP = "top-level"  # the name for modules that belong to no package
SKIPPED = {"__phello__", "__pycache__", "dist-packages", "idle_test", "lib2to3", "site-packages", "test", "tests"}


@dataclass(frozen=True)
class Source:
    """One module: its dotted name, its package, its file."""

    name: str
    package: str
    path: Path

    def read(self) -> bytes:
        """Return the module's source."""
        return self.path.read_bytes()


@lru_cache(maxsize=1)
def sources() -> tuple[Source, ...]:
    """Return all modules of the standard library but its tests, by name."""
    root = Path(sysconfig.get_path("stdlib"))
    found = [_source(root, folder / name) for folder, names in _folders(root) for name in names]
    return tuple(sorted(found, key=lambda source: source.name))


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


def _folders(root: Path) -> Iterator[tuple[Path, list[str]]]:
    """Yield the folders that are packages, with the names of their modules' files."""
    for folder, below, names in os.walk(root):
        below[:] = [name for name in below if name not in SKIPPED and name.isidentifier()]
        yield Path(folder), [name for name in names if name.endswith(".py") and name[:-3].isidentifier()]


def _source(root: Path, path: Path) -> Source:
    parts = path.relative_to(root).with_suffix("").parts
    package = parts[0] if len(parts) > 1 else TOP
    return Source(".".join(parts[:-1] if parts[-1] == "__init__" else parts), package, path)
