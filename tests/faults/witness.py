"""An independent witness of runs: one line per event in a file that every process appends to.

It does not use the database, so it also records what never reaches the database. Lines are shorter than a page, and a write to a
file opened with O_APPEND is not torn.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

VARIABLE = "FAULTS_WITNESS"


class Event(NamedTuple):
    """One line: what happened, to which job, where, and when (monotonic, the same clock for all processes of a machine)."""

    what: str
    job: int
    attempt: int
    pid: int
    thread: int
    at: float


def tell(what: str, context: Any) -> None:
    """Append an event of a task."""
    event = Event(what, context.job_id, context.attempt, os.getpid(), threading.get_ident(), time.monotonic())
    file = os.open(os.environ[VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, (json.dumps(event) + "\n").encode())
    finally:
        os.close(file)


@contextmanager
def run_of(context: Any) -> Iterator[None]:
    """Report the start and the end of a task."""
    tell("start", context)
    try:
        yield
    finally:
        tell("end", context)


class Witness:
    """Read the reports of the tasks."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def events(self) -> list[Event]:
        """All events so far, in order."""
        if not self.path.exists():
            return []
        return [Event(*json.loads(line)) for line in self.path.read_text().splitlines()]

    def count(self, what: str, job: int) -> int:
        """How often something happened to a job."""
        return sum(event.what == what and event.job == job for event in self.events)

    def starts(self) -> Counter[int]:
        """How often each job was begun."""
        return Counter(event.job for event in self.events if event.what == "start")

    def threads(self, jobs: set[int]) -> set[tuple[int, int]]:
        """The threads, as (pid, thread), that began these jobs."""
        return {(event.pid, event.thread) for event in self.events if event.what == "start" and event.job in jobs}

    def overlaps(self) -> list[int]:
        """The jobs that at some moment were run twice at once; a run whose process was killed has no end and is left out."""
        spans: dict[int, list[tuple[float, float]]] = {}
        begun: dict[tuple[int, int, int], float] = {}
        for event in self.events:
            key = (event.job, event.pid, event.thread)
            if event.what == "start":
                begun[key] = event.at
            elif event.what == "end" and key in begun:
                spans.setdefault(event.job, []).append((begun.pop(key), event.at))
        return [job for job, times in spans.items() if any(a[1] > b[0] for a, b in zip(sorted(times), sorted(times)[1:], strict=False))]
