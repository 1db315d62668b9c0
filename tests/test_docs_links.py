"""The links between the pages of the documentation."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors_of(page: Path) -> set[str]:
    """Return the anchors that GitHub makes of the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_link_of_a_page_leads_to_a_file_and_a_heading_that_exist(page: Path) -> None:
    broken = []
    for link in LINK.findall(CODE.sub("", page.read_text())):
        name, _, anchor = link.partition("#")
        if "://" in link or link.startswith("mailto:"):
            continue
        other = (page.parent / name).resolve() if name else page
        if not other.exists() or (anchor and other.suffix == ".md" and anchor not in anchors_of(other)):
            broken.append(link)
    assert broken == []


def test_each_page_of_the_documentation_is_linked_from_another() -> None:
    linked = {
        (page.parent / link.partition("#")[0]).resolve() for page in PAGES for link in LINK.findall(page.read_text()) if "://" not in link
    }
    assert [page.name for page in PAGES if page.parent.name == "docs" and page not in linked] == []


def test_a_package_whose_addresses_are_placeholders_cannot_be_uploaded() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    are_placeholders = any("://example." in url for url in project["urls"].values())
    assert ("Private :: Do Not Upload" in project["classifiers"]) == are_placeholders
