"""The peers: the figures of the peer benchmark for jobqueue, raw SQL and other queues, as rows of the table.

The harness is a separate program (``docs/benchmarks.md`` has its requirements). `HARNESS` names its folder.
`HARNESS_PYTHON` names the interpreter with its packages, if it is another one.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.scenarios import Row
from bench.subjects import CHECKOUT

HARNESS, PYTHON = "HARNESS", "HARNESS_PYTHON"
SUBJECTS = ("ours", "raw", "pgqueuer", "django_ox")
PEERS = SUBJECTS[2:]
WORKS = ("W1", "W2", "W3", "W4")
SMOKE = ("W0",)
ROUND_SECONDS = 900

Rounds = dict[str, dict[str, list[dict[str, Any]]]]


class Figure(NamedTuple):
    """A figure of the harness, with the wanted ratios of jobqueue to raw SQL and to the fastest of some peers."""

    key: str
    text: str
    work: str
    field: str
    of_raw: float | None
    of_peer: float | None
    peers: tuple[str, ...] = PEERS
    lower_is_better: bool = False


FIGURES = (
    Figure("smoke", "a few jobs, jobs/s", "W0", "rate", None, None),
    Figure("drain", "drain, jobs/s", "W1", "rate", 0.5, 1.2),
    Figure("drain_2", "drain with 2 processes, jobs/s", "W2", "rate", 0.45, 1.2),
    Figure("enqueue", "enqueue one by one, jobs/s", "W3", "one", None, 1.1, ("django_ox",)),
    Figure("bulk", "enqueue in bulk, jobs/s", "W3", "bulk", None, 1.2, ("pgqueuer",)),
    Figure("p50", "pick-up p50, ms", "W4", "p50", None, 1.2, ("pgqueuer",), lower_is_better=True),
    Figure("p99", "pick-up p99, ms", "W4", "p99", None, None, ("pgqueuer",), lower_is_better=True),
)


def program() -> Path | None:
    """Return the harness's program, if the environment names one."""
    if not (folder := os.environ.get(HARNESS)):
        return None
    found = Path(folder).absolute() / "run.py"
    if not found.is_file():
        raise SystemExit(f"{HARNESS}={folder!r} names no folder with a run.py: give the folder of the peers' harness, or unset it.")
    return found


def measure(harness: Path, repeats: int, *, quick: bool) -> list[Row]:
    """Run the harness; return its rows."""
    with tempfile.TemporaryDirectory(prefix="jobqueue-bench-") as directory:
        out = Path(directory) / "peers.json"
        _run(harness, out, SMOKE if quick else WORKS, repeats)
        return list(rows(json.loads(out.read_text())))


def _run(harness: Path, out: Path, works: Sequence[str], repeats: int) -> None:
    given = {"--adapter": str(CHECKOUT / "bench" / "adapter.py"), "--subjects": ",".join(SUBJECTS), "--work": ",".join(works)}
    options = [part for pair in given.items() for part in pair]
    command = [os.environ.get(PYTHON) or sys.executable, str(harness), *options, "--repeat", str(repeats), "--out", str(out)]
    # The harness puts its own folder and the adapter's first; no path of this process may precede them.
    environment = {name: value for name, value in os.environ.items() if name not in ("DJANGO_SETTINGS_MODULE", "PYTHONPATH")}
    with subprocess.Popen(command, cwd=CHECKOUT, env=environment, stdout=sys.stderr, stderr=subprocess.PIPE, text=True) as process:
        try:
            _, errors = process.communicate(timeout=ROUND_SECONDS * repeats)
        except BaseException:
            process.terminate()  # a killed harness would leave its servers behind
            raise
    if process.returncode or not out.is_file():
        raise SystemExit(
            f"The peers' harness ended with {process.returncode}: {errors[-2000:].strip()}\n"
            f"If its interpreter lacks a package, say {PYTHON}=path of one that has what its README asks for."
        )


def rows(found: dict[str, Any]) -> Iterator[Row]:
    """Yield a row against raw SQL and one against the fastest peer for each figure, by the rounds in which both were measured."""
    rounds = {name: _by_work(subject.get("runs", [])) for name, subject in found.items()}
    for figure in FIGURES:
        if not (ours := _values(rounds, "ours", figure)):
            if failed := rounds.get("ours", {}).get(figure.work):
                raise RuntimeError(f"The harness measured no {figure.work} of jobqueue: {failed[-1]}")
            continue
        yield from _against(rounds, figure, ours, "raw", "raw SQL", figure.of_raw)
        others = {name: values for name in figure.peers if any(values := _values(rounds, name, figure))}
        if others:
            best = (min if figure.lower_is_better else max)(others, key=lambda name: _middle(others[name]))
            yield from _against(rounds, figure, ours, best, f"{best} {found[best]['version']}", figure.of_peer)


def _by_work(runs: Sequence[dict[str, dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    sorted_runs: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        for work, result in run.items():
            sorted_runs.setdefault(work, []).append(result)
    return sorted_runs


def _values(rounds: Rounds, name: str, figure: Figure) -> list[float | None]:
    """Return the figure of each round; None if that round failed. Empty if all rounds failed."""
    values = [result.get(figure.field) for result in rounds.get(name, {}).get(figure.work, [])]
    return values if any(values) else []


def _middle(values: Sequence[float | None]) -> float:
    return statistics.median(value for value in values if value)


def _against(rounds: Rounds, figure: Figure, ours: Sequence[float | None], name: str, title: str, wanted: float | None) -> Iterator[Row]:
    pairs = [(mine, other) for mine, other in zip(ours, _values(rounds, name, figure), strict=False) if mine and other]
    if not pairs:
        return
    ratio = statistics.median(mine / other for mine, other in pairs)
    row = Row(
        f"peers_{figure.key}_{'raw' if name == 'raw' else 'fastest'}",
        f"harness: {figure.text} (neighbour: {title})",
        statistics.median(mine for mine, _ in pairs),
        statistics.median(other for _, other in pairs),
        ratio,
        runs={one: [result.get(figure.field) for result in works.get(figure.work, [])] for one, works in rounds.items()},
    )
    if wanted is not None:
        row.target = f"ratio at {'most' if figure.lower_is_better else 'least'} {wanted}"
        row.met = ratio <= wanted if figure.lower_is_better else ratio >= wanted
    elif figure.key == "p99" and name != "raw" and (middle := _values(rounds, "ours", figure._replace(field="p50"))):
        row.target, row.met = "at most 3 x p50", row.ours <= 3 * _middle(middle)
    row.runs["load_before"] = rounds["ours"][figure.work][0].get("load")
    yield row
