"""What a run found, as a table for people and as JSON."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from bench.scenarios import Row

HEAD = ("measured", "ours", "neighbour", "ratio", "wanted", "")


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a Markdown table."""
    lines = [HEAD, *map(_cells, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    drawn = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([drawn[0], rule, *drawn[1:]])


def _cells(row: Row) -> tuple[str, ...]:
    verdict = {None: "", True: "met", False: "missed"}[row.met]
    ratio = "" if row.ratio is None else f"{row.ratio:.3f}"
    return (row.text, _number(row.ours), "" if row.raw is None else _number(row.raw), ratio, row.target, verdict)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def data(rows: Sequence[Row], size: Any, cluster_version: str) -> dict[str, Any]:
    """Return everything that was found, and where."""
    return {
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": {"cpus": os.cpu_count(), "system": platform.platform(), "load": os.getloadavg()},
        "versions": {
            "python": platform.python_version(),
            "postgresql": cluster_version,
            **{name: importlib.metadata.version(name) for name in ("django", "psycopg")},
        },
        "size": asdict(size),
        "rows": [asdict(row) for row in rows],
    }
