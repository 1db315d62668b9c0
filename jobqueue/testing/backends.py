"""Backends for the tests of a project: they take everything that the database backend takes, and need no worker and no table.

Arguments obey the same rules, `unique_key` finds the task that has not ended, all three signals are sent, and results are
`JobResult` objects. What was enqueued is kept with the backend, so in the thread that enqueued it; ``clear()`` forgets it.
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
    from jobqueue.testing.inline import Kept

KEPT_MOST = 1000

_ids = itertools.count(1)


class KeepingBackend(JobTaskMixin, BaseTaskBackend):  # type: ignore[misc]
    """Check what is enqueued, and keep it in the order in which it came."""

    supports_defer = True
    supports_async_task = True
    supports_get_result = False  # the flag promises the results of all threads
    supports_priority = True
    keeps_deltas = True

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        """Begin with nothing."""
        super().__init__(alias, params)
        self.kept: dict[str, Kept] = {}

    @property
    def results(self) -> list[JobResult]:
        """The results of what was enqueued, oldest first; beyond 1000 the oldest that have ended are forgotten."""
        return [kept.result for kept in self.kept.values()]

    def clear(self) -> None:
        """Forget everything."""
        self.kept.clear()

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> JobResult:
        """Take a task; where one that has not ended has its unique key, return that one's result."""
        return self._accept(self._prepared(task, args, kwargs))

    def enqueue_many(self, task: Any, calls: Iterable[tuple[Sequence[Any], Mapping[str, Any]]]) -> Results:
        """Take a task for each ``(args, kwargs)``, all or none."""
        ready = [self._prepared(task, args, kwargs) for args, kwargs in calls]
        made = [self._accept(kept) for kept in ready]
        return Results(len(made), made.__getitem__)

    def get_result(self, result_id: str) -> JobResult:
        """Return the result of what this thread enqueued; raise `TaskResultDoesNotExist` for another id."""
        if result_id not in self.kept:
            raise compat.TaskResultDoesNotExist(result_id)
        return self.kept[result_id].result

    def _prepared(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Kept:
        from jobqueue.testing.inline import Kept

        self.validate_task(task)
        args_text, kwargs_text = payload.dumps_arguments(args, kwargs)
        given = task if isinstance(task, JobTask) else None
        key = options.resolved("unique_key", given.unique_key, tuple(args), kwargs) if given else ""
        target = options.resolved("target", given.target if given else None, tuple(args), kwargs)
        metadata = payload.dumps_metadata(given.metadata) if given and given.metadata else "{}"
        stored = json.loads(args_text), json.loads(kwargs_text)
        result = results.fresh(task, next(_ids), timezone.now(), *stored, self.alias)
        return Kept(result, args_text, kwargs_text, metadata, key, target)

    def _accept(self, new: Kept) -> JobResult:
        for kept in self.kept.values():
            if new.unique_key and kept.unique_key == new.unique_key and not kept.result.is_finished:
                return _copy(kept.result, created=False)
        self.kept[new.result.id] = new
        if len(self.kept) > KEPT_MOST:
            self.kept.pop(next((key for key, kept in self.kept.items() if kept.result.is_finished), ""), None)
        signals.task_enqueued.send_robust(type(self), task_result=new.result)
        return self._accepted(new)

    def _accepted(self, kept: Kept) -> JobResult:
        raise NotImplementedError


class DummyBackend(KeepingBackend):
    """Keep what was enqueued, and run nothing: ``results`` tells a test what would have run."""

    def _accepted(self, kept: Kept) -> JobResult:
        return _copy(kept.result)


class ImmediateBackend(KeepingBackend):
    """Run a task at once, in the caller's thread and transaction.

    What has a `run_after` in the future stays READY until the test calls ``run_deferred()``. A task that is to be tried again is
    tried at once, up to its `max_attempts`, and ``context.wait`` rests for 0.01 s at most: tests do not wait. KeyboardInterrupt
    reaches the caller, so that Ctrl-C ends a test run; whatever else a task raises ends the task.
    """

    def run_deferred(self) -> int:
        """Run what waits for its time, in the order of the times, as if they had come; return how many ran."""
        from jobqueue.testing import inline

        waiting = sorted((kept for kept in self.kept.values() if kept.waits), key=lambda kept: kept.due)
        for kept in waiting:
            inline.run(kept, type(self))
        return len(waiting)

    def _accepted(self, kept: Kept) -> JobResult:
        from jobqueue.testing import inline

        if kept.due <= timezone.now():
            inline.run(kept, type(self))
        return kept.result


def _copy(result: JobResult, **changes: Any) -> JobResult:
    """Return a copy that shares nothing with what the backend keeps, but for the task, which nobody can change."""
    made = copy.deepcopy(result, {id(result.task): result.task})
    for name, value in changes.items():
        object.__setattr__(made, name, value)
    return made
