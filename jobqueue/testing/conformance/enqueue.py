"""Tests of what ``enqueue`` returns."""

# ruff: noqa: PT009, PT027 - for every runner of unittest's cases, so with their own assertions

from __future__ import annotations

from datetime import timedelta

from asgiref.sync import async_to_sync
from django.utils import timezone

from jobqueue import compat
from jobqueue.testing.conformance.base import STATUS, Conformance


class EnqueueTests(Conformance):
    """Tests of the result that the caller gets."""

    def test_the_result_tells_what_was_enqueued(self) -> None:
        """A result names its task, arguments and backend."""
        task = self.sample("echo")
        result = task.enqueue(1, "two", named=[3])
        self.assertIsInstance(result, compat.TaskResult)
        self.assertEqual(result.task, task)
        self.assertEqual((result.args, result.kwargs, result.backend), ([1, "two"], {"named": [3]}, self.backend_alias))

    def test_ids_are_short_text_and_unique(self) -> None:
        """An id is text of 1 to 63 characters, and no two are equal."""
        ids = [self.sample("other").enqueue().id for _ in range(20)]
        for result_id in ids:
            self.assertIs(type(result_id), str)
            self.assertTrue(0 < len(result_id) < 64, result_id)
        self.assertEqual(len(set(ids)), len(ids))

    def test_a_new_result_is_ready_and_has_not_run(self) -> None:
        """A task that has not run has a time of enqueue, and neither a run nor an error."""
        self.needs_later_runs()
        result = self.sample("echo").enqueue(1)
        self.assert_recent(result.enqueued_at)
        self.assertEqual(result.status, STATUS.READY)
        self.assertEqual((result.started_at, result.last_attempted_at, result.finished_at), (None, None, None))
        self.assertEqual((list(result.errors), list(result.worker_ids), result.attempts), ([], [], 0))
        self.assertFalse(result.is_finished)
        with self.assertRaises(ValueError):
            _ = result.return_value

    def test_a_task_can_be_enqueued_from_a_coroutine(self) -> None:
        """``aenqueue`` does what ``enqueue`` does."""
        result = async_to_sync(self.sample("echo").aenqueue)(1, named=2)
        self.assertIsInstance(result, compat.TaskResult)
        self.assertEqual((result.args, result.kwargs, result.backend), ([1], {"named": 2}, self.backend_alias))
        if self.runs:
            self.run_enqueued()
            self.assertEqual(self.look(result).status, STATUS.SUCCESSFUL)

    def test_options_of_using_reach_the_result(self) -> None:
        """The task of the result has the priority, queue and time of the enqueued task."""
        task = self.sample("echo").using(queue_name=next(iter(sorted(self.backend.queues)), "another"))
        if self.backend.supports_priority:
            task = task.using(priority=7)
        if self.backend.supports_defer:
            task = task.using(run_after=timezone.now() + timedelta(hours=1))
        result = task.enqueue(1)
        options = ("priority", "queue_name", "run_after", "backend")
        self.assertEqual([getattr(result.task, name) for name in options], [getattr(task, name) for name in options])
        if self.backend.supports_get_result:
            stored = task.get_result(result.id)
            self.assertEqual([getattr(stored.task, name) for name in options], [getattr(task, name) for name in options])

    def test_a_later_change_of_an_argument_changes_nothing(self) -> None:
        """Later changes of an argument do not reach the stored arguments."""
        values = [1]
        result = self.sample("echo").enqueue(values)
        values.append(2)
        self.assertEqual(result.args, [[1]])
        if self.runs:
            self.run_enqueued()
            self.assertEqual(self.look(result).return_value, [1])
