"""Drawing covers."""

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from demo_project.library.covers import HEIGHT, WIDTH, Box, cover, treemap

SIZES = {"json": 359, "json.decoder": 357, "json.encoder": 443, "json.scanner": 73, "json.tool": 85}


def test_the_same_package_gives_the_same_picture() -> None:
    assert cover("json", SIZES, "5 modules") == cover("json", dict(reversed(SIZES.items())), "5 modules")


def test_another_package_gives_another_picture() -> None:
    pictures = {cover(*arguments, "5 modules") for arguments in (("json", SIZES), ("html", SIZES), ("json", {**SIZES, "json": 9}))}
    assert len(pictures) == 3


@pytest.mark.parametrize("sizes", [{}, {"a": 0}, {f"m{number}": number for number in range(500)}])
def test_a_cover_has_its_size_whatever_the_package_holds(sizes: dict[str, int]) -> None:
    image = Image.open(io.BytesIO(cover("a_name_much_too_long_for_one_line_" * 3, sizes, "")))
    assert (image.format, image.size) == ("PNG", (WIDTH, HEIGHT))


def test_a_long_title_stays_inside_the_margin() -> None:
    image = Image.open(io.BytesIO(cover("W" * 40, {}, "")))
    edge = [image.getpixel((WIDTH - 20, y)) for y in range(60, 120)]
    assert all(isinstance(pixel, tuple) and max(pixel) < 200 for pixel in edge)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.text(min_size=1, max_size=3), st.integers(1, 100_000), min_size=1, max_size=40))
def test_each_tile_has_its_share_of_the_area(sizes: dict[str, int]) -> None:
    tiles = dict(treemap(sizes, Box(0, 0, 400, 300)))
    assert set(tiles) == set(sizes)
    for name, box in tiles.items():
        assert box.width * box.height == pytest.approx(400 * 300 * sizes[name] / sum(sizes.values()))
        assert -1e-6 <= box.left <= box.left + box.width <= 400 + 1e-6
        assert -1e-6 <= box.top <= box.top + box.height <= 300 + 1e-6
