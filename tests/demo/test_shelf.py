"""Writing the library's rows and files."""

from collections import Counter
from pathlib import Path

import pytest

from demo_project.library import catalogue, shelf
from demo_project.library.models import Definition, Module, Package, Word

pytestmark = pytest.mark.django_db


def rows() -> list[tuple[object, ...]]:
    """Return what is stored of definitions."""
    return list(Definition.objects.order_by("line").values_list("module__name", "qualified_name", "kind", "line", "docstring", "search"))


def test_indexing_twice_leaves_the_same_rows() -> None:
    source = catalogue.find("json.decoder")
    assert shelf.store_module(source) == shelf.store_module(source) == Definition.objects.count() > 5
    before = rows()
    shelf.store_module(source)
    assert rows() == before
    assert (Module.objects.count(), Package.objects.count()) == (1, 1)


def test_indexing_changed_source_replaces_what_was_found_before(tmp_path: Path) -> None:
    path = tmp_path / "news.py"
    path.write_text("def old(): ...\ndef kept(): ...\n")
    source = catalogue.Source("news", catalogue.TOP, path)
    shelf.store_module(source)
    path.write_text("def kept(): ...\nclass New: ...\n")
    shelf.store_module(source)
    assert [row[1] for row in rows()] == ["kept", "New"]


def test_source_that_is_no_python_leaves_the_old_rows(tmp_path: Path) -> None:
    path = tmp_path / "news.py"
    path.write_text("def kept(): ...\n")
    source = catalogue.Source("news", catalogue.TOP, path)
    shelf.store_module(source)
    path.write_text("def (:\n")
    with pytest.raises(SyntaxError):
        shelf.store_module(source)
    assert [row[1] for row in rows()] == ["kept"]


def test_a_run_that_breaks_off_half_way_leaves_the_old_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "news.py"
    path.write_text("def kept(): ...\n")
    source = catalogue.Source("news", catalogue.TOP, path)
    shelf.store_module(source)
    monkeypatch.setattr(shelf, "SEARCHED", "no number")
    with pytest.raises(TypeError):
        shelf.store_module(source)
    assert [row[1] for row in rows()] == ["kept"]


def test_a_summary_is_the_first_line_of_the_package() -> None:
    assert shelf.refresh_summary("json") == Package.objects.get(name="json").summary
    assert shelf.refresh_summary("json").startswith("JSON (JavaScript Object Notation)")
    assert shelf.refresh_summary(catalogue.TOP) == Package.objects.get(name=catalogue.TOP).summary == "Modules without a package"


def test_indexing_the_module_that_is_the_package_gives_the_package_its_summary() -> None:
    shelf.store_module(catalogue.find("html.parser"))
    assert Package.objects.get().summary == ""
    shelf.store_module(catalogue.find("html"))
    assert Package.objects.get().summary == "General functions for HTML manipulation."


def test_drawing_a_cover_twice_leaves_one_file(media: Path) -> None:
    assert shelf.draw_cover("json") == shelf.draw_cover("json") == Package.objects.get().cover.name
    assert [path.name for path in (media / "covers").iterdir()] == ["json.png"]


def test_a_package_is_measured_over_all_of_its_modules() -> None:
    complexity = shelf.measure_package("json", catalogue.packages()["json"])
    assert complexity == Package.objects.get().complexity > 1


def test_words_are_counted_once_per_docstring_and_replace_those_of_before(tmp_path: Path) -> None:
    path = tmp_path / "news.py"
    path.write_text('def a(): "paper paper"\ndef b(): "paper press"\n')
    shelf.store_module(catalogue.Source("news", "news", path))
    counters = list(shelf.count_words(["news", "nothing"]))
    assert counters == [Counter(paper=2, press=1), Counter()]
    Word.objects.create(text="gone", uses=9)
    Word.objects.create(text="press", uses=9)
    shelf.store_words(counters[0])
    shelf.store_words(counters[0])
    assert list(Word.objects.values_list("text", "uses")) == [("paper", 2), ("press", 1)]
    assert shelf.store_words(Counter({"a": 1, "b": 2, "c": 3}), limit=2) == 2
    assert [word.text for word in Word.objects.all()] == ["c", "b"]
