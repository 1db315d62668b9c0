"""Charts: SVG from numbers."""

import re
from xml.etree import ElementTree

import pytest

from jobqueue.admin import charts
from jobqueue.admin.charts import Line, Mark


def parsed(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)  # noqa: S314 - made by this package


def points(svg: str) -> list[tuple[float, float]]:
    found = re.search(r'<polyline class="jq-line[^"]*" points="([^"]*)"', svg)
    assert found is not None
    return [(float(x), float(y)) for x, y in (point.split(",") for point in found[1].split())]


def test_a_sparkline_goes_from_its_least_to_its_highest_value() -> None:
    svg = charts.sparkline([0, 5, 10], "Depth")
    assert points(svg) == [(0, 100), (1, 50), (2, 0)]
    assert parsed(svg).get("aria-label") == "Depth"


def test_a_small_number_does_not_fill_a_sparkline() -> None:
    assert points(charts.sparkline([0, 1], "Depth", least=10)) == [(0, 100), (1, 90)]


@pytest.mark.parametrize("values", [[], [0], [0, 0, 0], [float("inf"), 1], [-1, 2], [1e300, 1]])
def test_any_numbers_make_a_chart_that_can_be_parsed(values: list[float]) -> None:
    labels = [str(value) for value in values]
    for svg in (
        charts.sparkline(values, "A"),
        charts.bars(values, labels, "A"),
        charts.time_chart([Line("In", "jq-in", values)], labels, "A", [Mark(0.5, "release 1")]),
    ):
        parsed(svg)
        assert "nan" not in svg


def test_no_chart_has_a_style_or_a_script() -> None:
    svg = charts.time_chart([Line("In", "jq-in", [1, 2])], ["a", "b"], "A", [Mark(1.0, "release 1", "jq-release")])
    assert "style" not in svg
    assert "<script" not in svg


def test_names_in_a_chart_are_escaped() -> None:
    svg = charts.time_chart([Line("In", "jq-in", [1])], ["<b>&"], '"<i>', [Mark(0.2, "<u>")])
    root = parsed(svg)
    assert root.get("aria-label") == '"<i>'
    assert [title.text for title in root.iter("title")] == ["<u>", "<b>&"]


def test_marks_are_numbered_and_their_texts_stay_inside() -> None:
    root = parsed(charts.time_chart([Line("In", "jq-in", [1])], ["a"], "A", [Mark(0.1, "one"), Mark(0.99, "two")]))
    texts = [*root.iter("text")]
    assert [(text.text, text.get("text-anchor")) for text in texts] == [("1", "start"), ("2", "end")]


@pytest.mark.parametrize(("highest", "end"), [(0, 1), (0.3, 0.5), (1, 1), (1.01, 2), (12, 20), (49, 50), (51, 100), (1e6, 1e6)])
def test_an_axis_ends_at_a_round_number(highest: float, end: float) -> None:
    assert charts.nice_maximum(highest) == pytest.approx(end)


def test_a_bar_has_the_height_of_its_value() -> None:
    root = parsed(charts.bars([1, 4], ["a", "b"], "Runs"))
    assert [bar.get("height") for bar in root.iter("rect") if bar.get("class") == "jq-bar-of"] == ["25", "100"]
