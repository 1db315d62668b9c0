"""Tests of results that are read again by their id."""

# ruff: noqa: PT009, PT027 - for every runner of unittest's cases, so with their own assertions

from __future__ import annotations

from asgiref.sync import async_to_sync

from jobqueue import compat
from jobqueue.testing.conformance.base import STATUS, Conformance

UNKNOWN_IDS = ("0", "-1", "999999999999999999", "9" * 40, "no-such-result", "6f1c1c1e-0000-4000-8000-000000000000", "")


class ResultTests(Conformance):
    """Tests of ``get_result``, ``refresh`` and their coroutines."""

    def test_a_result_is_found_by_its_id(self) -> None:
        """The task and the backend return the same result again."""
        self.needs_results()
        task = self.sample("echo")
        result = task.enqueue(1, named="x")
        for read in (task.get_result(result.id), self.backend.get_result(result.id)):
            self.assertEqual((read.id, read.task.func, read.backend), (result.id, task.func, self.backend_alias))
            self.assertEqual((read.args, read.kwargs, read.status), (result.args, result.kwargs, result.status))
            self.assertEqual(read.enqueued_at, result.enqueued_at)

    def test_a_result_is_found_from_a_coroutine(self) -> None:
        """``aget_result`` does what ``get_result`` does."""
        self.needs_results()
        task = self.sample("echo")
        result = task.enqueue(1)
        self.assertEqual(async_to_sync(task.aget_result)(result.id).id, result.id)
        self.assertEqual(async_to_sync(self.backend.aget_result)(result.id).id, result.id)

    def test_an_unknown_id_has_no_result(self) -> None:
        """An id that no task has, in any form, raises ``TaskResultDoesNotExist``."""
        self.needs_results()
        for result_id in UNKNOWN_IDS:
            with self.subTest(result_id):
                with self.assertRaises(compat.TaskResultDoesNotExist):
                    self.backend.get_result(result_id)
                with self.assertRaises(compat.TaskResultDoesNotExist):
                    async_to_sync(self.sample("echo").aget_result)(result_id)

    def test_a_result_of_another_task_does_not_match(self) -> None:
        """A task refuses the result of another task."""
        self.needs_results()
        result = self.sample("other").enqueue()
        with self.assertRaises(compat.TaskResultMismatch):
            self.sample("echo").get_result(result.id)
        with self.assertRaises(compat.TaskResultMismatch):
            async_to_sync(self.sample("echo").aget_result)(result.id)

    def test_a_result_can_be_refreshed(self) -> None:
        """``refresh`` and ``arefresh`` update an old result."""
        self.needs_results()
        self.needs_runs()
        task = self.sample("echo")
        first = task.enqueue("done")
        second = task.get_result(first.id)
        self.run_enqueued()
        first.refresh()
        async_to_sync(second.arefresh)()
        for result in (first, second):
            self.assertEqual((result.status, result.return_value, result.attempts), (STATUS.SUCCESSFUL, "done", 1))
            self.assert_recent(result.finished_at)

    def test_without_the_flag_nothing_pretends(self) -> None:
        """A backend without results raises ``NotImplementedError``, or at least ``TaskResultDoesNotExist`` for an unknown id."""
        if self.backend.supports_get_result:
            with self.assertRaises(compat.TaskResultDoesNotExist):
                self.backend.get_result("no-such-result")
        else:
            with self.assertRaises((NotImplementedError, compat.TaskResultDoesNotExist)):
                self.backend.get_result("no-such-result")
