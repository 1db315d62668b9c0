"""Ended jobs, and sweeps of the retention that tests run over them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from jobqueue import clock
from jobqueue.core.retention_rules import OUTCOMES, Rules, after
from jobqueue.models import Job
from jobqueue.retention.apply import Sweep
from tests.factories import JobFactory

LONG_AGO = timedelta(days=2)
DAY = 86_400.0


def ended(outcome: str = "success", ago: timedelta = LONG_AGO, **fields: Any) -> Job:
    """Make a job that ended this long ago."""
    return JobFactory(**{outcome: True}, finished_at=clock.now() - ago, **fields)


def many(number: int, **fields: Any) -> list[int]:
    """Make jobs that all ended at one moment of the day before yesterday."""
    moment = clock.now().replace(minute=0, second=0, microsecond=123_000) - LONG_AGO
    values = {"task": "tests.tasks.add", "status": "SUCCESS", "finished_at": moment, **fields}
    return [job.pk for job in Job.objects.bulk_create([Job(**values) for _ in range(number)])]


def deleting(seconds: float = DAY, **options: Any) -> Sweep:
    """Return a sweep that deletes all jobs that ended this long ago."""
    return Sweep(Rules(), after(OUTCOMES, seconds), **options)


def marking(seconds: float = DAY, **options: Any) -> Sweep:
    """Return a sweep that marks all jobs that ended this long ago."""
    return Sweep(after(OUTCOMES, seconds), Rules(), **options)


def left() -> set[int]:
    """Return the ids of the jobs that are there."""
    return set(Job.objects.values_list("pk", flat=True))


@contextlib.contextmanager
def heard(signal: Any) -> Iterator[list[dict[str, Any]]]:
    """Collect the arguments of a signal."""
    told: list[dict[str, Any]] = []

    def listen(sender: Any, **values: Any) -> None:
        told.append(values)

    signal.connect(listen)
    try:
        yield told
    finally:
        signal.disconnect(listen)
