"""The report on the library: a picture of bars, and a page with it."""

from collections.abc import Mapping, Sequence

from django.utils.html import format_html, format_html_join

ROW, LEFT, WIDE = 26, 140, 480


def bar(row: int, name: str, count: int, most: int) -> str:
    """Return one bar with its name and its number, as SVG."""
    top, width = ROW * row + 8, round(WIDE * count / max(most, 1))
    shape = '<text x="{}" y="{}" text-anchor="end">{}</text><rect x="{}" y="{}" width="{}" height="16"/><text x="{}" y="{}">{}</text>'
    return format_html(shape, LEFT - 8, top + 13, name, LEFT, top, width, LEFT + width + 8, top + 13, count)


def chart(bars: Sequence[str]) -> bytes:
    """Return the picture of bars that `bar` created."""
    size = f'viewBox="0 0 {LEFT + WIDE + 80} {ROW * len(bars) + 16}"'
    style = "<style>text { font: 13px sans-serif } rect { fill: #417690 }</style>"
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{style}{"".join(bars)}</svg>'.encode()


def page(counts: Mapping[str, int], picture: str) -> bytes:
    """Return the page."""
    rows = format_html_join("", "<tr><th>{}</th><td>{}</td></tr>", sorted(counts.items()))
    text = '<!doctype html><meta charset="utf-8"><title>{0}</title><h1>{0}</h1><img src="{1}" alt="The largest packages"><table>{2}</table>'
    return format_html(text, "The library today", picture, rows).encode()
