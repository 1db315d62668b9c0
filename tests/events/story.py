"""The events that a job must have for the state of its row, checked independently of the code that writes them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from django.db import connection

from jobqueue.core import event_names as names

WAITING = {"PENDING", "QUEUED", "RUNNING"}  # a claim has no event
STATUSES = {
    names.ENQUEUED: WAITING,
    names.STARTED: {"RUNNING"},
    names.RETRYING: WAITING,
    names.HANDED_BACK: WAITING,
    names.SLEEPING: WAITING,
    names.WAITING: WAITING,
    names.RESUMED: WAITING,
    names.PAUSED: {"PAUSED"},
    names.COMPLETED: {"SUCCESS"},
    names.FAILED: {"ERROR"},
    names.CANCELED: {"CANCELED"},
}


def all_told() -> dict[int, list[str]]:
    """Return the names of all events in their order, by job."""
    told: dict[int, list[str]] = {}
    with connection.cursor() as cursor:
        cursor.execute("SELECT job_id, name FROM jobqueue_jobevent ORDER BY id")
        for job_id, name in cursor.fetchall():
            told.setdefault(job_id, []).append(name)
    return told


def judge(told: Sequence[str], *, status: str, claims: int, begun: bool | None = None, idle_stops: int = 0) -> None:
    """Check that the names of a job's events, in their order, agree with its row.

    `claims` are its runs, with those that still run, and `begun` says whether one of these has started, if that is known;
    `idle_stops` is how often it was paused or canceled while no run existed.
    """
    assert told[0] == names.ENQUEUED, told
    assert told.count(names.ENQUEUED) == 1, told
    moves = [name for name in told if name in STATUSES]
    assert status in STATUSES[moves[-1]], (status, told)
    endings = [name for name in told if name in names.ENDINGS]
    assert len(endings) == claims - (status == "RUNNING") + idle_stops, (status, claims, idle_stops, told)
    for before, name in itertools.pairwise(moves):
        assert before not in (names.COMPLETED, names.CANCELED), f"nothing comes after the end: {told}"
        assert (before, name) != (names.STARTED, names.STARTED), told
        assert name != names.RESUMED or before in (names.PAUSED, names.FAILED), told
        assert name != names.COMPLETED or before == names.STARTED, told
    if status == "RUNNING" and begun is not None:
        assert (moves[-1] == names.STARTED) == begun, (begun, told)
    for at, name in enumerate(told):
        assert name != names.LEASE_EXPIRED or told[at + 1] in names.ENDINGS, told
