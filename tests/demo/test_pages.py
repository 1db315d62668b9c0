"""The library's pages."""

from contextlib import closing
from pathlib import Path

import pytest
from django.test import Client

from demo_project.library import catalogue, shelf
from demo_project.library.models import Word
from demo_project.library.templatetags.humane import highlight

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("pages", "media")]

SCRIPT = "<script>alert(1)</script>"
HOSTILE = f'''"""{SCRIPT} top"""
def evil(a="{SCRIPT}"):
    """{SCRIPT} docs"""
class Parser: ...
class ParserError(Exception): "A parser 100% sure."
def make_parser(): ...
def parser_of(): ...
def underscore_name(): "a_b"
def other(): "axb"
'''


@pytest.fixture(autouse=True)
def module(tmp_path: Path) -> None:
    """Index one module whose text wants to be markup."""
    path = tmp_path / "hostile.py"
    path.write_text(HOSTILE + "".join(f'def many_{number}(): "crowd"\n' for number in range(60)))
    shelf.store_module(catalogue.Source("hostile", "shelf", path))


def get(client: Client, path: str, **data: str) -> str:
    """Return the page at `path`, which must be there."""
    response = client.get(path, data)
    assert response.status_code == 200
    return response.content.decode()


def found(client: Client, query: str) -> list[str]:
    """Return the qualified names that a search lists."""
    return [definition.qualified_name for definition in client.get("/", {"q": query}).context["page"]]


def test_the_first_page_shows_covers_words_and_totals(client: Client) -> None:
    shelf.draw_cover("json")
    Word.objects.create(text="crowd", uses=60)
    page = get(client, "/")
    assert "/media/covers/json.png" in page
    assert "the cover is still to be drawn" in page
    assert 'href="?q=crowd"' in page
    assert "<b>67</b> definitions" in page


def test_a_search_finds_by_name_and_by_docstring_and_ranks_names_first(client: Client) -> None:
    assert found(client, "parser") == ["Parser", "ParserError", "parser_of", "make_parser"]
    assert found(client, "SURE parser") == ["ParserError"]
    assert found(client, "hostile.make") == ["make_parser"]
    assert found(client, "parser nowhere") == []


def test_wildcards_are_searched_as_they_are(client: Client) -> None:
    assert found(client, "100%") == ["ParserError"]
    assert found(client, "a_b") == ["underscore_name"]


@pytest.mark.parametrize("query", ["", " ", "\0", "%00", "a" * 5000, "'; DROP TABLE", "\\", "😀"])
def test_no_query_breaks_the_page(client: Client, query: str) -> None:
    assert client.get("/", {"q": query}).status_code == 200


@pytest.mark.parametrize("page", ["0", "-1", "two", "999999999999999999999", ""])
def test_no_page_number_breaks_the_page(client: Client, page: str) -> None:
    for path in ("/?q=crowd", "/package/shelf/?", "/module/hostile/?"):
        assert client.get(f"{path}&page={page}").status_code == 200


def test_pages_of_results_keep_the_query(client: Client) -> None:
    page = get(client, "/", q="crowd def&x=1")
    assert "No definition holds all of these words" in page
    page = get(client, "/", q="crowd many_")
    assert "60 definitions" in page
    assert "Page 1 of 3" in page
    assert 'href="?q=crowd%20many_&amp;page=2"' in page
    assert "Page 3 of 3" in get(client, "/", q="crowd many_", page="3")


@pytest.mark.parametrize("path", ["/?q=script", f"/?q={SCRIPT}", "/package/shelf/", "/module/hostile/", f"/?q=crowd&page={SCRIPT}"])
def test_markup_is_shown_as_text(client: Client, path: str) -> None:
    page = get(client, path)
    assert "<script" not in page
    assert "script" in page or "crowd" in page


def test_a_highlighted_text_is_escaped_piece_by_piece() -> None:
    assert highlight("a <b> & B", ["b", "&"]) == "a &lt;<mark>b</mark>&gt; <mark>&amp;</mark> <mark>B</mark>"
    assert highlight("<i>", []) == "&lt;i&gt;"
    assert highlight("lt;", ["lt"]) == "<mark>lt</mark>;"


def test_a_definition_opens_its_module_at_the_page_with_its_line(client: Client) -> None:
    response = client.get("/module/hostile/", {"line": "70"})
    assert response.context["page"].number == 2
    assert 'id="line-69"' in response.content.decode()
    for line in ("x", "-1", "9" * 30, "²"):
        assert client.get("/module/hostile/", {"line": line}).status_code == 200


@pytest.mark.parametrize("path", ["/package/none/", "/module/none/", "/media/none.png", "/nowhere"])
def test_a_missing_object_is_not_found(client: Client, path: str) -> None:
    response = client.get(path)
    assert response.status_code == 404
    assert "Traceback" not in response.content.decode()


def test_files_are_served_from_the_media_folder_alone(client: Client, media: Path) -> None:
    shelf.draw_cover("json")
    (media.parent / "secret").write_text("secret")
    with closing(client.get("/media/covers/json.png")) as response:
        assert (response.status_code, response["Content-Type"]) == (200, "image/png")
    for path in (
        "/media/../secret",
        "/media/%2e%2e/secret",
        "/media/covers/../../secret",
        f"/media//{media.parent}/secret",
        "/media/covers/",
    ):
        assert client.get(path).status_code in (400, 404)


def test_pages_load_nothing_from_elsewhere(client: Client) -> None:
    for path in ("/", "/?q=crowd", "/package/shelf/", "/module/hostile/"):
        assert "://" not in get(client, path)
    with closing(client.get("/static/library/style.css")) as response:
        assert response.status_code == 200
