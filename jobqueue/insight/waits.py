"""The waits of all attempts of a job, computed from its history and its times alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from jobqueue.core import states
from jobqueue.db.records import MAX_ENTRIES
from jobqueue.models import Job

MAX_SHOWN = 5
WAITING = (states.Status.QUEUED, states.Status.PENDING, states.Status.RUNNING)


def waits(job: Job, runs: Sequence[dict[str, Any]], now: datetime) -> list[dict[str, Any]]:
    """Return for each attempt how many seconds it waited: from the creation of the job, or from the end of the previous run, to its start.

    The delay before a retry counts. The time of runs without an entry in the history also counts, that is, of
    runs that were handed back or ended in a sleep. The wait of an attempt that has not begun lasts until now. A
    wait is None if it is unknown, because a long history no longer has the runs after its first one.
    """
    starts = [(_number(entry.get("attempt")), moment(entry, "started_at")) for entry in runs]
    ends = [job.created_at, *(moment(entry, "finished_at") for entry in runs)]
    if job.status == states.Status.SUCCESS or (job.status == states.Status.RUNNING and job.started_at is not None):
        starts.append((job.attempt, job.started_at))
    elif job.status in WAITING:
        starts.append((job.attempt + (job.status != states.Status.RUNNING), now))
    if job.attempt and starts and job.first_started_at is not None:
        starts[0] = (starts[0][0], job.first_started_at)
    if len(runs) >= MAX_ENTRIES and not _follow(starts[0][0], starts[1][0]):
        ends[1] = None
    return [
        {"attempt": attempt, "waited_seconds": between(end, start)}
        for (attempt, start), end in zip(starts, ends[: len(starts)], strict=True)
    ]


def in_all(waits: Sequence[dict[str, Any]]) -> float:
    """Return the sum of the known waits of all attempts, in seconds."""
    known: list[float] = [wait["waited_seconds"] for wait in waits if wait["waited_seconds"] is not None]
    return sum(known, 0.0)


def in_words(waits: Sequence[dict[str, Any]], shown: Callable[[float], str]) -> str:
    """Return the waits of the newest attempts and the sum of all waits, as text."""
    each = [
        f"{'unknown' if wait['waited_seconds'] is None else shown(wait['waited_seconds'])} before run {wait['attempt'] or '?'}"
        for wait in waits[-MAX_SHOWN:]
    ]
    if len(waits) <= 1 or all(wait["waited_seconds"] is None for wait in waits):
        return ", ".join(each)
    least = "at least " if any(wait["waited_seconds"] is None for wait in waits) else ""
    return f"{'…, ' if len(waits) > MAX_SHOWN else ''}{', '.join(each)} ({least}{shown(in_all(waits))} in all)"


def between(begin: datetime | None, end: datetime | None) -> float | None:
    """Return the seconds between two times; None if a time is unknown, or if the second time is before the first."""
    if begin is None or end is None or (begin.tzinfo is None) != (end.tzinfo is None) or end < begin:
        return None
    return (end - begin) / timedelta(seconds=1)


def moment(entry: dict[str, Any], name: str) -> datetime | None:
    """Return a time of an entry, None if it has none."""
    value = entry.get(name)
    try:
        return datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None


def _follow(first: int | None, second: int | None) -> bool:
    return first is not None and second == first + 1
