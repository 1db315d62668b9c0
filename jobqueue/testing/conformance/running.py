"""Tests of how a task runs: its result, times, context and order."""

# ruff: noqa: PT009 - for every runner of unittest's cases, so with their own assertions

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.utils import timezone

from jobqueue.testing.conformance.base import STATUS, Conformance


class RunTests(Conformance):
    """Tests of runs that succeed, and of when tasks run."""

    def test_a_task_that_returns_is_successful(self) -> None:
        """The status is SUCCESSFUL, there is a return value, and there is no error."""
        result = self.run_sample("echo", "good")
        self.assertEqual((result.status, result.return_value), (STATUS.SUCCESSFUL, "good"))
        self.assertEqual(list(result.errors), [])

    def test_a_task_that_returns_nothing_is_successful(self) -> None:
        """None is a return value, too."""
        result = self.run_sample("other")
        self.assertEqual((result.status, result.return_value), (STATUS.SUCCESSFUL, None))

    def test_the_times_of_a_run_are_in_order(self) -> None:
        """The times of enqueue, start, last attempt and end are recent, and in this order."""
        result = self.run_sample("echo", 1)
        times = [result.enqueued_at, result.started_at, result.last_attempted_at, result.finished_at]
        for moment in times:
            self.assert_recent(moment)
        self.assertEqual(times, sorted(times))

    def test_a_run_is_counted_with_its_worker(self) -> None:
        """One run is one attempt and one worker id, which is text."""
        result = self.run_sample("echo", 1)
        self.assertEqual((result.attempts, len(result.worker_ids)), (1, 1))
        self.assertTrue(all(isinstance(worker, str) and worker for worker in result.worker_ids), result.worker_ids)

    def test_a_return_value_is_what_json_makes_of_it(self) -> None:
        """A tuple is returned as a list to every reader."""
        self.assertEqual(self.run_sample("two_values").return_value, [1, [2, 3]])

    def test_a_context_tells_of_its_run(self) -> None:
        """The context is a TaskContext of the first attempt, its result is RUNNING, and it is no argument of the caller."""
        result = self.run_sample("look_at_context", "a", "b")
        self.assertEqual(result.args, ["a", "b"])
        expected = {
            "is_context": True,
            "attempt": 1,
            "id": result.id,
            "status": "RUNNING",
            "path": self.sample("look_at_context").module_path,
            "args": ["a", "b"],
            "values": ["a", "b"],
        }
        self.assertEqual(result.return_value, expected)

    def test_a_coroutine_runs(self) -> None:
        """An ``async def`` task is awaited."""
        self.needs_async()
        self.assertEqual(self.run_sample("aecho", [1, 2]).return_value, [1, 2])

    def test_a_coroutine_can_look_at_its_context(self) -> None:
        """An ``async def`` task gets the same context, and may read its result."""
        self.needs_async()
        result = self.run_sample("alook_at_context")
        self.assertEqual(result.status, STATUS.SUCCESSFUL, result.errors)
        self.assertEqual(result.return_value, {"is_context": True, "attempt": 1, "id": result.id})

    def test_what_is_deferred_does_not_run_early(self) -> None:
        """A task waits for its time, and a task whose time has passed runs."""
        self.needs_runs()
        if not self.backend.supports_defer:
            self.skipTest("The backend does not claim supports_defer.")
        hour, now = timedelta(hours=1), timezone.now()
        early = self.sample("echo").using(run_after=now + hour).enqueue("early")
        due = self.sample("echo").using(run_after=now - hour).enqueue("due")
        self.run_enqueued()
        self.assertEqual((self.look(early).status, early.attempts), (STATUS.READY, 0))
        self.assertEqual(self.look(due).status, STATUS.SUCCESSFUL)

    def test_a_higher_priority_runs_first(self) -> None:
        """The task with the highest number runs first; equal ones run in the order of their enqueue."""
        self.needs_runs()
        self.needs_later_runs()
        if not (self.runs_in_order and self.backend.supports_priority):
            self.skipTest("The backend does not claim supports_priority, or its runs have no order here.")
        priorities = (0, -100, 100, 5, 0)
        results = [self.sample("echo").using(priority=priority).enqueue(place) for place, priority in enumerate(priorities)]
        self.run_enqueued()
        order = sorted((self.look(result) for result in results), key=_began)
        self.assertEqual([result.return_value for result in order], [2, 3, 0, 4, 1])

    def test_every_task_runs_once(self) -> None:
        """Each of many tasks runs exactly once, however often the worker polls."""
        self.needs_runs()
        results = [self.sample("echo").enqueue(number) for number in range(30)]
        self.run_enqueued()
        self.run_enqueued()
        returned = [(self.look(result).return_value, result.attempts) for result in results]
        self.assertEqual(returned, [(number, 1) for number in range(30)])


def _began(result: Any) -> Any:
    return result.started_at
