"""Functions that write facts about the library to the database; all are idempotent."""

import hashlib
import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from demo_project.library import catalogue, covers, extract
from demo_project.library.models import Definition, Module, Package, Word

SEARCHED = 2000  # the characters of a definition that the search page searches


@transaction.atomic
def store_module(source: catalogue.Source) -> int:
    """Index one module: replace its row and its definitions, and return their number."""
    code = source.read()
    found = extract.extract(code, source.name)
    values = {
        "package": package(source.package),
        "docstring": found.docstring,
        "line_count": found.line_count,
        "digest": hashlib.sha256(code).hexdigest(),
        "indexed_at": timezone.now(),
    }
    # The row lock of the update makes a second run of the same job wait until the first has replaced the
    # definitions.
    module, _ = Module.objects.update_or_create(name=source.name, defaults=values)
    module.definitions.all().delete()
    if source.name == source.package:
        Package.objects.filter(name=source.package).update(summary=_first_line(found))
    Definition.objects.bulk_create(_definition(module, definition) for definition in found.definitions)
    return len(found.definitions)


def package(name: str) -> Package:
    """Return the row of the package called `name`; create it if necessary."""
    summary = "Modules without a package" if name == catalogue.TOP else ""
    return Package.objects.get_or_create(name=name, defaults={"summary": summary})[0]


def refresh_summary(name: str) -> str:
    """Write the first line of the package's docstring to its row, and return it."""
    shelved = package(name)
    if name != catalogue.TOP:
        shelved.summary = _first_line(extract.extract(catalogue.find(name).read(), name))
        shelved.save(update_fields=["summary"])
    return shelved.summary


def draw_cover(name: str) -> str:
    """Draw the package's cover into the media folder and return the name of the file."""
    sizes = {source.name: source.read().count(b"\n") for source in catalogue.packages()[name]}
    picture = covers.cover(name, sizes, f"{len(sizes)} modules, {sum(sizes.values()):,} lines")
    file_name = f"covers/{name}.png"
    write_file(Path(settings.MEDIA_ROOT) / file_name, picture)
    Package.objects.update_or_create(name=name, defaults={"cover": file_name})
    return file_name


def measure_package(name: str, sources: Iterable[catalogue.Source]) -> float:
    """Measure the functions of `sources` and write their mean complexity to the package's row."""
    total = sum((extract.measure(source.read(), source.name) for source in sources), extract.Measure(0, 0))
    Package.objects.update_or_create(name=name, defaults={"complexity": total.complexity})
    return total.complexity


def count_words(names: Iterable[str]) -> Iterator[Counter[str]]:
    """Count the words in the docstrings of each package in turn."""
    for name in names:
        counter: Counter[str] = Counter()
        for text in Definition.objects.filter(module__package__name=name).values_list("docstring", flat=True).iterator():
            counter.update(set(extract.words(text)))
        yield counter


@transaction.atomic
def store_words(uses: Counter[str], limit: int = 28) -> int:
    """Replace the words of the search page by the `limit` most used ones."""
    ranked = sorted(uses.items(), key=lambda item: (-item[1], item[0]))[:limit]
    Word.objects.exclude(text__in=[text for text, _ in ranked]).delete()
    rows = [Word(text=text[:60], uses=count) for text, count in ranked]
    Word.objects.bulk_create(rows, update_conflicts=True, unique_fields=["text"], update_fields=["uses"])
    return len(rows)


def write_media(name: str, content: bytes) -> str:
    """Write a file of the media folder, and return its name."""
    write_file(Path(settings.MEDIA_ROOT) / name, content)
    return name


def write_file(path: Path, content: bytes) -> None:
    """Replace the file at `path` in one step: after a crash, a reader sees the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(content)
    os.chmod(file.name, 0o644)
    os.replace(file.name, path)


def _definition(module: Module, found: extract.Found) -> Definition:
    return Definition(
        module=module,
        kind=found.kind,
        name=found.name[:200],
        qualified_name=found.qualified_name[:400],
        signature=found.signature,
        line=found.line,
        docstring=found.docstring,
        search=f"{module.name}.{found.qualified_name} {found.docstring}".lower()[:SEARCHED],
    )


def _first_line(found: extract.Extract) -> str:
    return found.docstring.strip().partition("\n")[0][:300]
