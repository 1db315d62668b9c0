"""The job to which a record of the log belongs, for formatters and for structlog.

The job is that of a context variable. A coroutine has the job of its task, and so has a thread that was started with a copy of the
context, as by ``asyncio.to_thread``. Other threads have none.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import MutableMapping
from contextvars import ContextVar
from typing import Any, Protocol

from jobqueue.core.masking import mask_text

FIELDS = ("job_id", "task", "queue", "attempt", "tenant")
NO_JOB = dict.fromkeys(FIELDS)


class JobOfRun(Protocol):
    """A claimed job, as far as the log needs it."""

    @property
    def id(self) -> int:
        """The number of the job."""

    @property
    def task(self) -> str:
        """The dotted path of the task."""

    @property
    def queue(self) -> str:
        """The name of the queue."""

    @property
    def attempt(self) -> int:
        """The number of the run."""

    @property
    def tenant(self) -> str:
        """The tenant, or an empty text."""


class LoggingRun(Protocol):
    """A run whose records are recognized."""

    @property
    def job(self) -> JobOfRun:
        """The job that runs."""


current_run: ContextVar[LoggingRun | None] = ContextVar("jobqueue_current_run", default=None)


def job_fields() -> dict[str, Any]:
    """Return the job whose task is executing, by the names in `FIELDS`; all values are None outside of tasks."""
    run = current_run.get()
    if run is None:
        return NO_JOB
    job = run.job
    return {"job_id": job.id, "task": job.task, "queue": _masked(job.queue), "attempt": job.attempt, "tenant": _masked(job.tenant)}


class JobFields(logging.Filter):
    """A filter that gives each record the fields of `job_fields`, if the record has no values of these names; put it on a handler."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields and accept the record."""
        record.__dict__.update({**job_fields(), **record.__dict__})
        return True


def add_job_fields(logger: Any, name: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Add the fields of the job to an event, as a processor of structlog; outside of tasks, add nothing."""
    if current_run.get() is not None:
        for field, value in job_fields().items():
            event.setdefault(field, value)
    return event


_masked = functools.lru_cache(maxsize=1000)(mask_text)
