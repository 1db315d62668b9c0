"""Backends for the tests of a project: they accept everything that the database backend accepts, and need no worker and no table.

Arguments obey the same rules, `unique_key` finds the task that has not ended, all three signals are sent, and results are
`JobResult` objects. Each thread has a backend object of its own, which stores the tasks that the thread enqueued; ``clear()`` removes
them.
"""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from django.utils import timezone

from jobqueue import compat, signals
from jobqueue.backends import BaseTaskBackend, JobTaskMixin
from jobqueue.core import payload
from jobqueue.tasks import options, results
from jobqueue.tasks.results import JobResult, Results
from jobqueue.tasks.task import JobTask

if TYPE_CHECKING:
    from jobqueue.testing.inline import EnqueuedTask

MAX_KEPT = 1000

_ids = itertools.count(1)


class KeepingBackend(JobTaskMixin, BaseTaskBackend):  # type: ignore[misc]
    """A backend that checks the enqueued tasks, and stores them in the order of the calls."""

    supports_defer = True
    supports_async_task = True
    supports_get_result = False  # true would promise the results of all threads
    supports_priority = True
    keeps_deltas = True

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        """Create a backend without enqueued tasks."""
        super().__init__(alias, params)
        self.kept: dict[str, EnqueuedTask] = {}

    @property
    def results(self) -> list[JobResult]:
        """The results of the enqueued tasks, oldest first; if there are more than 1000, the oldest that have ended are dropped."""
        return [enqueued.result for enqueued in self.kept.values()]

    def clear(self) -> None:
        """Remove all enqueued tasks."""
        self.kept.clear()

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> JobResult:
        """Enqueue a task; if a task that has not ended has its unique key, return the result of that task."""
        return self._accept(self._prepared(task, args, kwargs))

    def enqueue_many(self, task: Any, calls: Iterable[tuple[Sequence[Any], Mapping[str, Any]]]) -> Results:
        """Enqueue a task for each ``(args, kwargs)``, all or none."""
        ready = [self._prepared(task, args, kwargs) for args, kwargs in calls]
        results = [self._accept(enqueued) for enqueued in ready]
        return Results(len(results), results.__getitem__)

    def get_result(self, result_id: str) -> JobResult:
        """Return the result of a task that this thread enqueued; raise `TaskResultDoesNotExist` for another id."""
        if result_id not in self.kept:
            raise compat.TaskResultDoesNotExist(result_id)
        return self.kept[result_id].result

    def _prepared(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> EnqueuedTask:
        from jobqueue.testing.inline import EnqueuedTask

        self.validate_task(task)
        args_text, kwargs_text = payload.dumps_arguments(args, kwargs)
        given = task if isinstance(task, JobTask) else None
        key = options.resolved("unique_key", given.unique_key, tuple(args), kwargs) if given else ""
        target = options.resolved("target", given.target if given else None, tuple(args), kwargs)
        metadata = payload.dumps_metadata(given.metadata) if given and given.metadata else "{}"
        stored = json.loads(args_text), json.loads(kwargs_text)
        result = results.fresh(task, next(_ids), timezone.now(), *stored, self.alias)
        return EnqueuedTask(result, args_text, kwargs_text, metadata, key, target)

    def _accept(self, new: EnqueuedTask) -> JobResult:
        for enqueued in self.kept.values():
            if new.unique_key and enqueued.unique_key == new.unique_key and not enqueued.result.is_finished:
                return _copy(enqueued.result, created=False)
        self.kept[new.result.id] = new
        if len(self.kept) > MAX_KEPT:
            self.kept.pop(next((key for key, enqueued in self.kept.items() if enqueued.result.is_finished), ""), None)
        signals.task_enqueued.send_robust(type(self), task_result=new.result)
        return self._accepted(new)

    def _accepted(self, enqueued: EnqueuedTask) -> JobResult:
        raise NotImplementedError


class DummyBackend(KeepingBackend):
    """A backend that stores the enqueued tasks and runs none; ``results`` shows a test what would have run."""

    def _accepted(self, enqueued: EnqueuedTask) -> JobResult:
        return _copy(enqueued.result)


class ImmediateBackend(KeepingBackend):
    """A backend that runs a task immediately, in the caller's thread and transaction.

    A task with a `run_after` in the future stays READY until the test calls ``run_deferred()``. Tests do not wait: retries follow
    immediately, up to `max_attempts`, and ``context.wait`` waits for at most 0.01 s. KeyboardInterrupt reaches the caller, so that Ctrl-C
    ends a test run; any other exception of a task ends the task.
    """

    def run_deferred(self) -> int:
        """Run the tasks that wait for their time, in the order of their times, as if these had come; return the number of tasks."""
        from jobqueue.testing import inline

        waiting = sorted((enqueued for enqueued in self.kept.values() if enqueued.waits), key=lambda enqueued: enqueued.due)
        for enqueued in waiting:
            inline.run(enqueued, type(self))
        return len(waiting)

    def _accepted(self, enqueued: EnqueuedTask) -> JobResult:
        from jobqueue.testing import inline

        if enqueued.due <= timezone.now():
            inline.run(enqueued, type(self))
        return enqueued.result


def _copy(result: JobResult, **changes: Any) -> JobResult:
    """Return a copy that shares nothing with the stored result except the task, which is immutable."""
    result_copy = copy.deepcopy(result, {id(result.task): result.task})
    for name, value in changes.items():
        object.__setattr__(result_copy, name, value)
    return result_copy
