"""The jobs of schedules: which task, with which options, unique key and target."""

from __future__ import annotations

import sys
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from jobqueue.backends import DatabaseBackend, backend_of
from jobqueue.declared import registry
from jobqueue.exceptions import InvalidOption
from jobqueue.schedules.declarations import check_arguments
from jobqueue.tasks import options
from jobqueue.tasks.task import JobTask

if TYPE_CHECKING:
    from jobqueue.models import Schedule


class DefinitionChangedError(Exception):
    """The error for a schedule whose definition has changed since its key and target were computed."""


class NextJob(NamedTuple):
    """The unique key and the target of a schedule's next job, and the definition from which they were computed."""

    definition: tuple[Any, ...]
    options: dict[str, str]


def calls_project(path: str) -> bool:
    """Return whether code of the project runs to create a job of a task: its import, or the callable of its key or target."""
    entry = registry.find(path)
    if entry is None:
        return path.rpartition(".")[0] not in sys.modules
    return any(callable(getattr(entry.task, name, None)) for name in ("unique_key", "target"))


def own(row: Schedule) -> NextJob:
    """Return the unique key and the target of the next job; this can call code of the project."""
    task = _task(row, None)
    given = {name: getattr(task, name, None) for name in ("unique_key", "target")}
    resolved = {name: options.resolved(name, value, tuple(row.args), row.kwargs) for name, value in given.items() if callable(value)}
    return NextJob(_definition(row), resolved)


def _definition(row: Schedule) -> tuple[Any, ...]:
    return row.task, row.args, row.kwargs, row.options


def enqueue_scheduled(row: Schedule, nominal: datetime | None, own: NextJob | None = None) -> int:
    """Create the job of a schedule and return its number. An option that the schedule does not set is that of the task.

    Its metadata have the schedule's name and the nominal time. If an unfinished job has the task's unique key,
    return the number of that job. With `own`, no callable of the task is called; raise `DefinitionChangedError` if
    `own` is for another definition.
    """
    task = _task(row, nominal)
    if own is not None:
        if own.definition != _definition(row):
            raise DefinitionChangedError
        # As callables, because None would mean the task's own.
        task = task.using(**{name: partial(_constant, text) for name, text in own.options.items()}) if own.options else task
    backend = backend_of(task)
    if not isinstance(backend, DatabaseBackend):
        raise InvalidOption(f"Backend {task.backend!r} of {row.task} is a {type(backend).__name__}; schedules need DatabaseBackend.")
    return int(backend.enqueue(task, row.args, row.kwargs).job_id)


def _constant(text: str, *args: Any, **kwargs: Any) -> str | None:
    return text or None


def _task(row: Schedule, nominal: datetime | None) -> Any:
    """Return the task of a schedule with the options of its job."""
    entry = registry.find_or_load(row.task)
    if entry is None:
        hint = "Check that it is in <app>/tasks.py or TASK_MODULES. If another project shares this database, give each its own SERVICE."
        raise InvalidOption(f"No registered task has the path {row.task!r}. {hint}")
    check_arguments(row, entry)
    task, given = entry.task, row.options
    if isinstance(task, JobTask):
        note = {"name": row.name, "nominal_at": nominal.isoformat() if nominal else None}
        given["metadata"] = {**(task.metadata or {}), "schedule": note}
    elif "tenant" in given or "target" in given:
        raise InvalidOption(f"{row.task} is a plain task of django.tasks, which has no tenant and no target; declare it by jobqueue.task.")
    return task.using(**given) if given else task


def run_schedule_now(name: str) -> int:
    """Create a job of a schedule now, even if it is disabled; its times do not change. Return the job's number."""
    from jobqueue.schedules import ticks

    return ticks.run_now(name, enqueue_scheduled)
