"""Charts as SVG: pure functions of numbers.

The markup has class names and no styles, so a strict content security policy allows it. A chart is as wide as its place: its
lines are stretched, its texts are not. All texts of a chart are also in a table or in the text beside it, so no user needs
the drawing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

HEIGHT = 100  # of the drawing area, in its own units
STEPS = (1.0, 2.0, 5.0, 10.0)
CLOSE = 0.03  # marks closer than this share of the width have their numbers below each other
LATE = 0.97  # from here on, the number of a mark is before its line
SPOT = '<rect class="jq-spot" x="{}" y="0" width="1" height="{}"><title>{}</title></rect>'
STRETCHED = '<svg x="0" y="0" width="100%" height="100%" viewBox="0 0 {} {}" preserveAspectRatio="none">{}</svg>'
MARK = (
    '<g class="jq-mark {0}"><line x1="{1}%" x2="{1}%" y1="0" y2="100%"/>'
    '<text x="{1}%" y="{2}" dx="{3}" text-anchor="{4}">{5}</text><title>{6}</title></g>'
)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a chart: its name, its CSS class, and a value for each point."""

    name: str
    css_class: str
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class Mark:
    """A vertical line at a point of time: its position as a share of the width, and its text."""

    share: float
    text: str
    css_class: str = ""


def nice_maximum(highest: float) -> float:
    """Return the end of an axis: the first of 1, 2, 5, 10 and so on that is not below a value."""
    if not 0 < highest < math.inf:
        return 1.0
    size = 10.0 ** math.floor(math.log10(highest))
    return next(step * size for step in STEPS if step * size >= highest * (1 - 1e-9))


def maximum(lines: Sequence[Line]) -> float:
    """Return the end of the axis of some lines."""
    return nice_maximum(_highest([value for line in lines for value in line.values]))


def sparkline(values: Sequence[float], text: str, css_class: str = "", *, least: float = 1e-9) -> SafeString:
    """Return a small chart of one line without axes; `text` describes it for users who do not see it.

    `least` is the least end of its axis, so that the noise of a small number does not fill the height.
    """
    top = max(_highest(values), least)
    width = max(len(values) - 1, 1)
    points = _points(values, top)
    return format_html(
        '<svg class="jq-spark {}" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">'
        '<polygon class="jq-area" points="0,{} {} {},{}"/><polyline class="jq-line" points="{}"/></svg>',
        *(css_class, width, HEIGHT, text, HEIGHT, points, width, HEIGHT, points),
    )


def time_chart(lines: Sequence[Line], labels: Sequence[str], text: str, marks: Sequence[Mark] = ()) -> SafeString:
    """Return a chart of several lines over time; `labels` has the text of each point, which a pointer shows."""
    top = maximum(lines)
    number = max(len(labels), 1)
    drawn = format_html_join(
        "", '<polyline class="jq-line {}" points="{}"/>', ((line.css_class, _points(line.values, top, middle=True)) for line in lines)
    )
    spots = format_html_join(
        "",
        '<rect class="jq-spot" x="{}" y="0" width="1" height="{}"><title>{}</title></rect>',
        ((n, HEIGHT, label) for n, label in enumerate(labels)),
    )
    grid = format_html_join("", '<line class="jq-grid" x1="0" x2="100%" y1="{0}%" y2="{0}%"/>', ((y,) for y in (0, 50, 100)))
    return format_html(
        '<svg class="jq-chart" role="img" aria-label="{}">{}' + STRETCHED + "{}" + STRETCHED + "</svg>",
        *(text, grid, number, HEIGHT, drawn, _marks(marks), number, HEIGHT, spots),
    )


def bars(values: Sequence[float], labels: Sequence[str], text: str, css_class: str = "") -> SafeString:
    """Return a bar for each value, as in a histogram."""
    top = max(_highest(values), 1e-9)
    drawn = format_html_join(
        "",
        '<rect class="jq-bar-of" x="{}" y="{}" width="0.9" height="{}"/>' + SPOT,
        (
            (n + 0.05, _short(HEIGHT - height), _short(height), n, HEIGHT, label)
            for n, (value, label) in enumerate(zip(values, labels, strict=True))
            for height in [HEIGHT * _share(value, top)]
        ),
    )
    return format_html(
        '<svg class="jq-bars {}" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>',
        *(css_class, max(len(values), 1), HEIGHT, text, drawn),
    )


def _marks(marks: Sequence[Mark]) -> SafeString:
    """Return the vertical lines with their numbers; a list beside the chart has their texts."""
    return format_html_join(
        "",
        MARK,
        (
            (mark.css_class, _short(100 * mark.share), 11 + 12 * level, *_anchor(mark), number, mark.text)
            for number, mark in enumerate(marks, 1)
            for level in [sum(mark.share - CLOSE < before.share for before in marks[: number - 1])]
        ),
    )


def _anchor(mark: Mark) -> tuple[int, str]:
    return (-4, "end") if mark.share > LATE else (4, "start")


def _points(values: Sequence[float], top: float, *, middle: bool = False) -> SafeString:
    offset = 0.5 if middle else 0
    points = (f"{_short(n + offset)},{_short(HEIGHT * (1 - _share(value, top)))}" for n, value in enumerate(values))
    return mark_safe(" ".join(points))  # noqa: S308 - numbers only


def _highest(values: Sequence[float]) -> float:
    return max((value for value in values if value < math.inf), default=0.0)


def _share(value: float, top: float) -> float:
    return min(max(value / top, 0.0), 1.0)


def _short(number: float) -> str:
    return f"{number:.2f}".rstrip("0").rstrip(".")
