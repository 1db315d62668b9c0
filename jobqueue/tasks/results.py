"""Jobs as results of django.tasks.

PENDING, QUEUED and PAUSED are READY; RUNNING is RUNNING; SUCCESS is SUCCESSFUL; ERROR and CANCELED are FAILED. A
canceled job has the error `JobCanceled`, so that a caller that waits for its result stops waiting. Results are
readable even if the task or the queue of the job is gone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, overload

from jobqueue import clock, compat, public_ids
from jobqueue.core import states
from jobqueue.declared import registry
from jobqueue.tasks.task import detached, placeholder

if TYPE_CHECKING:  # a task is declared before the models are loaded
    from jobqueue.db import Claimed
    from jobqueue.models import Job

CANCELED = "jobqueue.exceptions.JobCanceled"
NAMES = {
    states.Status.RUNNING: "RUNNING",
    states.Status.SUCCESS: "SUCCESSFUL",
    states.Status.ERROR: "FAILED",
    states.Status.CANCELED: "FAILED",
}


@dataclass(frozen=True, kw_only=True)
class JobResult(compat.TaskResult):  # type: ignore[misc]
    """A task result with the job's number, its status in jobqueue, and whether this enqueue created the job."""

    job_id: int = 0
    job_status: str = states.Status.QUEUED.value
    created: bool = True

    def __post_init__(self) -> None:
        """Set the slot of the parent's field, which a subclass without slots leaves empty."""
        object.__setattr__(self, "_return_value", None)
        super().__post_init__()


def status_of(status: str) -> Any:
    """Return the status of django.tasks for a status of a job."""
    return compat.TaskResultStatus[NAMES.get(states.Status(status), "READY")]


def fresh(task: Any, job_id: int, created_at: Any, args: Any, kwargs: Any, backend: str) -> JobResult:
    """Return the result of a job that was created just now."""
    return JobResult(
        task=task,
        id=public_ids.public_id(job_id),
        job_id=job_id,
        status=compat.TaskResultStatus.READY,
        enqueued_at=clock.as_project(created_at),
        started_at=None,
        finished_at=None,
        last_attempted_at=None,
        args=list(args),
        kwargs=dict(kwargs),
        backend=backend,
        errors=[],
        worker_ids=[],
        job_status=(states.Status.PENDING if _is_ahead(task.run_after) else states.Status.QUEUED).value,
    )


def _is_ahead(run_after: datetime | timedelta | None) -> bool:
    """Return whether an enqueue makes the job PENDING; if its time has passed, it is promoted soon after."""
    return run_after > timedelta() if isinstance(run_after, timedelta) else run_after is not None


def of_claim(job: Claimed, task: Any, status: str) -> JobResult:
    """Return a result from the data of a claim, for log lines; its times and errors are not known."""
    result = fresh(detached(task, run_after=None), job.id, None, [], {}, task.backend)
    object.__setattr__(result, "status", status_of(status))
    object.__setattr__(result, "job_status", status)
    return result


def of_job(job: Job, *, created: bool = True) -> JobResult:
    """Return the result of a job from its row, for the backend that created the job."""
    running = [job.lease_owner] if job.status == states.Status.RUNNING else []
    result = JobResult(
        task=task_of(job),
        id=public_ids.public_id(job.pk),
        job_id=job.pk,
        status=status_of(job.status),
        enqueued_at=clock.as_project(job.created_at),
        started_at=clock.as_project(job.first_started_at),
        finished_at=clock.as_project(job.finished_at),
        last_attempted_at=clock.as_project(job.started_at),
        args=job.args if isinstance(job.args, list) else [],
        kwargs=job.kwargs if isinstance(job.kwargs, dict) else {},
        backend=job.backend,
        errors=errors_of(job),
        worker_ids=[*job.worker_ids, *running],
        job_status=job.status,
        created=created,
    )
    object.__setattr__(result, "_return_value", job.result)
    return result


def errors_of(job: Job) -> list[Any]:
    """Return the errors of the runs, oldest first, as objects of django.tasks."""
    pairs = [(entry["exception"], entry.get("traceback", "")) for entry in job.history if entry.get("exception")]
    if job.status == states.Status.CANCELED:
        pairs.append((CANCELED, job.message))
    elif job.status == states.Status.ERROR and not pairs:
        pairs.append(("jobqueue.exceptions.JobQueueError", job.message))
    return [compat.TaskError(exception_class_path=path, traceback=text) for path, text in pairs]


def task_of(job: Job) -> Any:
    """Return the job's task with the job's options, unchecked; a placeholder if the task is not registered."""
    values = {"priority": job.priority, "queue_name": job.queue, "run_after": clock.as_project(job.run_at), "backend": job.backend}
    entry = registry.find(job.task)
    if entry is None:
        with contextlib.suppress(Exception):  # a module that cannot be imported here must not make results unreadable
            registry.discover()
        entry = registry.find(job.task)
    return placeholder(job.task, **values) if entry is None else detached(entry.task, **values)


class Results(Sequence[JobResult]):
    """A sequence that builds each result when it is read, because most callers of a bulk enqueue read none."""

    def __init__(self, count: int, make: Callable[[int], JobResult]) -> None:
        """Store the number of results and the function that builds one."""
        self._count, self._make = count, make

    def __len__(self) -> int:
        """Return the number of results."""
        return self._count

    @overload
    def __getitem__(self, index: int) -> JobResult: ...
    @overload
    def __getitem__(self, index: slice) -> list[JobResult]: ...
    def __getitem__(self, index: int | slice) -> JobResult | list[JobResult]:
        """Return one result or a slice."""
        places = range(self._count)[index]
        return self._make(places) if isinstance(places, int) else [self._make(place) for place in places]
