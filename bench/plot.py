"""``python -m bench.plot FIGURES.json PICTURE.svg``: draw what the scenario `autoscale` saw, as plain SVG."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

Point = tuple[float, float]

WIDTH, HEIGHT = 900, 420
LEFT, RIGHT, TOP, MIDDLE, BOTTOM = 60, 20, 46, 250, 40
STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#333}.title{font-weight:600}.axis{stroke:#888}.grid{stroke:#e3e3e3}"
    ".depth{fill:#9ec5e8;stroke:#2a6fa8}.slots{fill:none;stroke:#c2410c;stroke-width:2}.running{fill:#f6c9a8;stroke:none}"
)


def main() -> None:
    """Read the figures, write the picture."""
    parser = argparse.ArgumentParser(prog="python -m bench.plot", description=__doc__)
    parser.add_argument("figures", type=Path, help="what `python -m bench --scenario autoscale --out …` has written")
    parser.add_argument("picture", type=Path, help="the SVG file to write")
    options = parser.parse_args()
    rows = {row["key"]: row for row in json.loads(options.figures.read_text())["rows"]}
    if "autoscale_up" not in rows:
        parser.error(f"{options.figures} has no figures of the scenario autoscale: measure with --scenario autoscale first.")
    options.picture.write_text(picture(rows["autoscale_up"]["runs"]["samples"]))


def picture(samples: Sequence[Sequence[float]]) -> str:
    """Return the SVG of samples (seconds, queued, running, slots): queued jobs above, slots and running jobs below."""
    seconds = max(sample[0] for sample in samples)
    upper = _Panel("Jobs that wait", TOP, MIDDLE - 40, seconds, max(sample[1] for sample in samples))
    lower = _Panel("Slots (line) and jobs that run (area)", MIDDLE, HEIGHT - BOTTOM, seconds, max(max(sample[2:]) for sample in samples))
    label = "Jobs that wait, slots and running jobs over time"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">',
        f"<style>{STYLE}</style>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        *upper.frame(),
        upper.area("depth", [(sample[0], sample[1]) for sample in samples]),
        *lower.frame(),
        lower.area("running", [(sample[0], sample[2]) for sample in samples]),
        lower.line("slots", [(sample[0], sample[3]) for sample in samples]),
        *_seconds(lower, seconds),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


class _Panel:
    """One diagram: a part of the picture's height, and its scale."""

    def __init__(self, title: str, top: float, bottom: float, seconds: float, most: float) -> None:
        """Set its position and scale."""
        self.title, self.top, self.bottom = title, top, bottom
        self.step = _step(most)
        self.most = max(math.ceil(most / self.step), 1) * self.step
        self._seconds = seconds or 1.0

    def x(self, at: float) -> float:
        """Return the position of a time."""
        return LEFT + (WIDTH - LEFT - RIGHT) * at / self._seconds

    def y(self, value: float) -> float:
        """Return the position of a value."""
        return self.bottom - (self.bottom - self.top) * value / self.most

    def frame(self) -> list[str]:
        """Return the title, and lines with their numbers."""
        found = [f'<text class="title" x="{LEFT}" y="{self.top - 14}">{escape(self.title)}</text>']
        for number in range(int(self.most / self.step) + 1):
            value = number * self.step
            kind, y = "grid" if number else "axis", f"{self.y(value):.1f}"
            found.append(f'<line class="{kind}" x1="{LEFT}" y1="{y}" x2="{WIDTH - RIGHT}" y2="{y}"/>')
            found.append(f'<text x="{LEFT - 8}" y="{self.y(value) + 4:.1f}" text-anchor="end">{value:g}</text>')
        return found

    def line(self, kind: str, points: Sequence[Point]) -> str:
        """Return a line in steps."""
        return f'<path class="{kind}" d="{self._steps(points)}"/>'

    def area(self, kind: str, points: Sequence[Point]) -> str:
        """Return the area under a line in steps."""
        begin, end = self.x(points[0][0]), self.x(points[-1][0])
        return f'<path class="{kind}" d="M{begin:.1f},{self.bottom} L{self._steps(points)[1:]} L{end:.1f},{self.bottom} Z"/>'

    def _steps(self, points: Sequence[Point]) -> str:
        found, before = [f"M{self.x(points[0][0]):.1f},{self.y(points[0][1]):.1f}"], points[0][1]
        for at, value in points[1:]:
            if value != before:
                found.append(f"H{self.x(at):.1f} V{self.y(value):.1f}")
                before = value
        return " ".join([*found, f"H{self.x(points[-1][0]):.1f}"])


def _seconds(panel: _Panel, seconds: float) -> list[str]:
    step = _step(seconds / 2)
    places = [number * step for number in range(int(seconds / step) + 1)]
    return [f'<text x="{panel.x(at):.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{at:g} s</text>' for at in places]


def _step(most: float) -> float:
    """Return a round distance between lines, so that there are about five of them."""
    wanted = max(most, 1) / 5
    power = 10 ** math.floor(math.log10(wanted))
    return next(step for step in (power, 2 * power, 5 * power, 10 * power) if step >= wanted) if most > 5 else 1


if __name__ == "__main__":
    main()
