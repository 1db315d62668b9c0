"""Reading Python source."""

from pathlib import Path

import pytest

from demo_project.library import extract, tasks

SOURCE = b'''"""Top of the module.

More."""
import sys

class Shelf(dict, metaclass=type):
    """Hold books."""

    def put(self, book, *, at=0):
        """Put a book.""" ; return [b for b in self if b]

    async def fetch(self): pass

    class Label:
        def text(self): ...

def outer(a: int, /) -> None:
    """See https://docs.python.org/3/, and http://example.org/a(b)."""
    def inner():
        if a: return
    return inner

async def walk(): ...

if sys.platform == "win32":
    def only_there(): ...
else:
    try:
        import _fast
    except ImportError:
        def fallback(): """zero: \\0 half: \\ud800"""
'''


def names(kind: str) -> list[str]:
    """Return the qualified names of one kind."""
    return [found.qualified_name for found in extract.extract(SOURCE).definitions if found.kind == kind]


def test_the_docstring_and_the_lines_of_a_module_are_found() -> None:
    found = extract.extract(SOURCE)
    assert found.docstring == "Top of the module.\n\nMore."
    assert found.line_count == len(SOURCE.decode().split("\n"))


def test_definitions_are_distinguished_by_where_and_how_they_are_written() -> None:
    assert names("CLASS") == ["Shelf", "Shelf.Label"]
    assert names("METHOD") == ["Shelf.put", "Shelf.fetch", "Shelf.Label.text"]
    assert names("COROUTINE") == ["walk"]


def test_definitions_behind_if_and_except_are_found_and_those_inside_functions_are_not() -> None:
    assert names("FUNCTION") == ["outer", "only_there", "fallback"]


def test_a_definition_keeps_its_line_signature_and_docstring() -> None:
    put = next(found for found in extract.extract(SOURCE).definitions if found.name == "put")
    assert (put.line, put.signature, put.docstring) == (9, "(self, book, *, at=0)", "Put a book.")
    shelf = extract.extract(SOURCE).definitions[0]
    assert shelf.signature == "(dict)"


def test_text_that_a_database_cannot_store_is_spelled_out() -> None:
    fallback = next(found for found in extract.extract(SOURCE).definitions if found.name == "fallback")
    assert fallback.docstring == "zero: \\0 half: \\ud800"


def test_branches_are_counted_once_also_in_a_function_within_a_function() -> None:
    assert extract.measure(SOURCE) == extract.Measure(functions=8, branches=2)
    assert extract.Measure(4, 2).complexity == 1.5
    assert extract.Measure(0, 0).complexity == 1.0
    assert extract.Measure(1, 2) + extract.Measure(3, 4) == extract.Measure(4, 6)


def test_addresses_lose_the_punctuation_around_them() -> None:
    assert extract.urls(SOURCE.decode()) == {"https://docs.python.org/3/", "http://example.org/a(b"}
    assert extract.urls("<http://a.org/x>; 'https://b.org'.") == {"http://a.org/x", "https://b.org"}


def test_common_and_short_words_are_not_counted() -> None:
    assert extract.words("Return the Parser, with a parser for its ast") == ["parser", "parser"]


def test_the_sample_is_no_python_of_this_version() -> None:
    sample = Path(tasks.SAMPLES) / "legacy.txt"
    with pytest.raises(SyntaxError, match="print"):
        extract.extract(sample.read_bytes(), sample.name)
