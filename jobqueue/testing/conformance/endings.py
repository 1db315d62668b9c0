"""Tests of runs that fail: the error is reported, and the worker continues."""

# ruff: noqa: PT009, PT027 - for every runner of unittest's cases, so with their own assertions

from __future__ import annotations

from typing import Any

from jobqueue.testing import sample_tasks
from jobqueue.testing.conformance.base import STATUS, Conformance


class EndingTests(Conformance):
    """Tests of errors and their reports."""

    def test_a_task_that_raises_has_failed(self) -> None:
        """The status is FAILED, the attempt counts, and there is no return value."""
        result = self.run_sample("fail", "broken pipe of clay")
        self.assertEqual((result.status, result.attempts), (STATUS.FAILED, 1))
        self.assert_recent(result.finished_at)
        with self.assertRaises(ValueError):
            _ = result.return_value

    def test_an_error_names_its_class_and_its_place(self) -> None:
        """The error has the exception's path and class, and a traceback with its text and the task's name."""
        self.assert_error(self.run_sample("fail", "broken pipe of clay"), ValueError, "broken pipe of clay", "in fail")

    def test_an_exception_with_its_own_constructor_is_told(self) -> None:
        """An exception is reported even if it cannot be recreated from its arguments."""
        result = self.run_sample("fail_in_its_own_way")
        self.assert_error(result, sample_tasks.SampleError, "odd (42)", "in fail_in_its_own_way")

    def test_an_exception_that_cannot_be_shown_is_told(self) -> None:
        """An exception whose ``__str__`` raises ends the task, not the worker."""
        self.assert_error(self.run_sample("fail_speechless"), sample_tasks.SpeechlessError, "SpeechlessError")

    def test_a_coroutine_that_raises_has_failed(self) -> None:
        """The error of an ``async def`` task is reported in the same way."""
        self.needs_async()
        self.assert_error(self.run_sample("afail", "async text"), ValueError, "async text", "in afail")

    def test_a_return_value_that_json_cannot_hold_fails_the_task(self) -> None:
        """The task fails with an error, and its result can be read."""
        result = self.run_sample("unstorable")
        self.assertEqual((result.status, len(result.errors)), (STATUS.FAILED, 1))
        self.assertTrue(issubclass(result.errors[0].exception_class, (TypeError, ValueError)), result.errors)

    def test_arguments_that_do_not_fit_fail_the_task(self) -> None:
        """A wrong number of arguments is the task's TypeError, not the worker's."""
        self.needs_runs()
        result = self.sample("other").enqueue("too", "many")
        self.run_enqueued()
        self.assert_error(self.look(result), TypeError, "other()")

    def test_whatever_a_task_raises_ends_only_the_task(self) -> None:
        """SystemExit, KeyboardInterrupt and the like fail the task, and the next task runs."""
        if not self.survives_everything:
            self.skipTest("The backend lets such exceptions through to the caller.")
        self.needs_runs()
        pairs = [(path, self.sample("raise_fatal").enqueue(path), self.sample("echo").enqueue(path)) for path in sample_tasks.FATAL]
        self.run_enqueued()
        for path, fatal, next_one in pairs:
            with self.subTest(path):
                self.assertEqual(self.look(fatal).status, STATUS.FAILED)
                self.assertEqual([error.exception_class_path for error in fatal.errors], [path])
                self.assertEqual(self.look(next_one).return_value, path)
        self.assertEqual(self.run_sample("echo", "later").return_value, "later")

    def assert_error(self, result: Any, kind: type[BaseException], *texts: str) -> None:
        """Check the one error of a failed result."""
        self.assertEqual((result.status, len(result.errors)), (STATUS.FAILED, 1))
        error = result.errors[0]
        self.assertEqual(error.exception_class_path, f"{kind.__module__}.{kind.__qualname__}")
        self.assertIs(error.exception_class, kind)
        for text in texts:
            self.assertIn(text, error.traceback)
