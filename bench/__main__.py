"""``python -m bench``: measure, print a table of the figures with their targets, and write JSON."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

from bench import peers, report
from bench.autoscale import AUTOSCALE
from bench.cluster import Cluster
from bench.events import EVENTS
from bench.growing import GROWING
from bench.lines import LINES
from bench.machine import MACHINE
from bench.retention import RETENTION
from bench.scenarios import QUICK, Row, Size
from bench.scenarios import SCENARIOS as PLAIN
from bench.subjects import BOTH

SCENARIOS = {**PLAIN, **LINES, **AUTOSCALE, **RETENTION, **EVENTS, **GROWING, **MACHINE}
WITH_STATEMENTS = {"idle", "idle_many", "heartbeat"}


def main() -> int:
    """Run the scenarios of the command line."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # workers and the server end, too
    size = QUICK if options.quick else Size()
    if options.repeats:
        size = dataclasses.replace(size, repeats=options.repeats)
    if options.expired:
        size = dataclasses.replace(size, expired=options.expired)
    if options.processes:
        size = dataclasses.replace(size, processes=options.processes)
    harness = peers.program()
    rows: list[Row] = []
    version = ""
    for statements in (False, True):
        chosen = [name for name in options.scenario if (name in WITH_STATEMENTS) == statements]
        if chosen:
            with Cluster(statements=statements) as cluster:
                version = cluster.execute("SHOW server_version")[0][0]
                for subject in BOTH:
                    subject.prepare(cluster)
                for name in chosen:
                    rows += _measure(name, cluster, size)
    if harness:  # after the server of this run has ended
        rows += peers.measure(harness, size.repeats, quick=options.quick)
    print(report.table(rows))
    print(f"\nResults of other queues on another day, in one run of the peer harness (docs/benchmarks.md):\n\n{report.published()}\n")
    options.out.write_text(json.dumps(report.data(rows, size, version), indent=1))
    print(f"Details: {options.out}")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure jobqueue beside the limit that raw SQL reaches.")
    parser.add_argument("--scenario", type=_names, default=[*SCENARIOS], help=f"names, separated by commas: {', '.join(SCENARIOS)}")
    parser.add_argument("--quick", action="store_true", help="a few hundred jobs: shows that everything runs, not how fast")
    parser.add_argument("--repeats", type=int, help="how often each pair is measured (default 3, with --quick 1)")
    parser.add_argument("--expired", type=int, help="how many expired jobs retention deletes (default 300000, with --quick 30000)")
    parser.add_argument("--processes", type=_counts, help="numbers of processes to compare, separated by commas (default 1,2,3,4)")
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()) / "jobqueue-bench.json", help="file for the JSON")
    return parser.parse_args()


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in SCENARIOS:
            raise argparse.ArgumentTypeError(f"{name!r} is no scenario; there are {', '.join(SCENARIOS)}")
    return names


def _counts(text: str) -> tuple[int, ...]:
    counts = tuple(int(part) for part in text.split(",") if part.strip().isdigit())
    if not counts or min(counts) < 1 or len(counts) != len(text.split(",")):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers of processes, such as 1,2,4")
    return counts


def _measure(name: str, cluster: Cluster, size: Size) -> list[Row]:
    began, load = time.monotonic(), os.getloadavg()[0]
    rows = list(SCENARIOS[name](cluster, size))
    print(f"{name}: {time.monotonic() - began:.0f} s, load average {load:.1f} before", file=sys.stderr, flush=True)
    for row in rows:
        row.runs["load_before"] = load
    return rows


if __name__ == "__main__":
    sys.exit(main())
