"""The page of the comparison has whole tables, a date, a source for each library, and a reason for each feature that jobqueue lacks."""

import re
from pathlib import Path

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "comparison.md").read_text()
SECTIONS = ("Guarantees", "Control", "Seeing", "Interface", "Running")


def rows_of(section: str) -> list[list[str]]:
    """Return the rows of the table of a section, without the line below its head."""
    text = re.split(rf"^## {section}$", PAGE, flags=re.MULTILINE)[1].split("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if not line.startswith("|---")]


def test_each_row_has_a_cell_for_each_library() -> None:
    heads = [rows_of(section)[0] for section in SECTIONS]
    assert all(head == heads[0] for head in heads)
    assert heads[0][:2] == ["Feature", "jobqueue"]
    assert len(heads[0]) == 10
    rows = [row for section in SECTIONS for row in rows_of(section)]
    assert [row for row in rows if len(row) != 10 or "" in row] == []


def test_no_feature_occurs_twice() -> None:
    features = [row[0] for section in SECTIONS for row in rows_of(section)[1:]]
    assert sorted(features) == sorted(set(features))


def test_the_page_is_dated() -> None:
    assert re.search(r"as of 20\d\d-\d\d-\d\d\.", PAGE)


def test_each_library_has_its_sources() -> None:
    sources = PAGE.split("## Sources")[1]
    for library in rows_of("Guarantees")[0][1:]:
        assert f"**{library}**" in sources


def test_each_feature_that_jobqueue_lacks_has_a_reason() -> None:
    rows = [row for section in SECTIONS for row in rows_of(section)[1:]]
    lacking = {row[0] for row in rows if re.match(r"no\b", row[1]) or "not in the admin" in row[1]}
    reasons = {row[0] for row in rows_of("What jobqueue does not have")[1:]}
    assert lacking <= reasons
    assert reasons <= {row[0] for row in rows}
