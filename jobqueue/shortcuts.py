"""Functions that enqueue in bulk, and by the path of a task that the caller does not import."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jobqueue.backends import backend_of
from jobqueue.declared import registry
from jobqueue.exceptions import InvalidOption
from jobqueue.tasks import options as options_module
from jobqueue.tasks.results import JobResult, Results
from jobqueue.tasks.task import placeholder


def enqueue_many(task: Any, calls: Iterable[tuple[Sequence[Any], Mapping[str, Any]]]) -> Results:
    """Create a job for each ``(args, kwargs)``, all or none.

    This is much faster than single calls. Each result is built when it is read. Options come with the task:
    ``enqueue_many(task.using(priority=5), calls)``.
    """
    results: Results = backend_of(task).enqueue_many(task, calls)
    return results


def enqueue_job(task_path: str, /, *args: Any, kwargs: Mapping[str, Any] | None = None, **options: Any) -> JobResult:
    """Create a job for a task that is named by its dotted path; `options` are those of ``.using()``.

    The task need not be importable here: a worker that has registered it runs it. If no worker has registered it
    within `UNKNOWN_TASK_GRACE_SECONDS`, the job ends in ERROR. Raise `InvalidOption` for a path that no function
    can have.
    """
    if not isinstance(task_path, str) or "." not in task_path or not all(part.isidentifier() for part in task_path.split(".")):
        raise InvalidOption(f"task_path is {task_path!r}; it must be a dotted path such as 'shop.tasks.send_invoice'.")
    options_module.check_path(task_path)
    entry = registry.find_or_load(task_path)
    task = placeholder(task_path) if entry is None else entry.task
    if options:
        task = task.using(**options)
    result: JobResult = backend_of(task).enqueue(task, args, dict(kwargs or {}))
    return result
