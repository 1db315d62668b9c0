"""The results of a run, as a table and as JSON.

``python -m bench.report figures.json [more.json ...]`` prints stored results as Markdown for
``docs/benchmark-results.md``. If two files have the same row, the later file's row is used.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.scenarios import Row

HEAD = ("measured", "jobqueue", "neighbour", "ratio", "wanted", "")
PUBLISHED = Path(__file__).with_name("published.md")


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
    """Return all results, with the machine, the versions and the sizes."""
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


def published() -> str:
    """Return the figures of the peers from one earlier run of their harness on a machine of this kind."""
    return PUBLISHED.read_text().rstrip()


def document(runs: Sequence[dict[str, Any]]) -> str:
    """Return the rows of runs as Markdown, with a description of the machine and the load before each row."""
    told = dict.fromkeys(_circumstances(run) for run in runs)
    latest: dict[str, tuple[Row, float | None]] = {}
    for kept in (kept for run in runs for kept in run["rows"]):
        row = Row(**kept)
        latest[row.key] = row, row.runs.get("load_before")
    lines = ["| Measured | jobqueue | neighbour | ratio | wanted | | load |", "|---|---|---|---|---|---|---|"]
    for row, load in latest.values():
        cells = (*_cells(row), "" if load is None else f"{load:.1f}")
        lines.append("|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|")
    return "\n".join([*told, "", *lines])


def _circumstances(run: dict[str, Any]) -> str:
    at, versions = datetime.datetime.fromisoformat(run["at"]), run["versions"]
    repeats = run["size"]["repeats"]
    server = f" PostgreSQL {versions['postgresql']}," if versions["postgresql"] else ""  # the harness uses a server of its own
    return (
        f"Taken on {at.day} {at:%B %Y} on a machine with {run['machine']['cpus']} cores,{server}"
        f" Python {versions['python']}, Django {versions['django']}, psycopg {versions['psycopg']};"
        f" {'one measurement' if repeats == 1 else f'{repeats} measurements'} of each. Load: the average of the last minute before each."
    )


def main() -> int:
    """Print the table of the files on the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.report", description="Print figures that `python -m bench` kept as Markdown.")
    parser.add_argument("figures", nargs="+", type=Path, help="JSON files, the latest last")
    print(document([json.loads(file.read_text()) for file in parser.parse_args().figures]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
