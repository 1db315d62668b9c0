"""Tests of the declaration of tasks: which tasks a backend accepts, and which it refuses."""

# ruff: noqa: PT009, PT027 - for every runner of unittest's cases, so with their own assertions

from __future__ import annotations

from datetime import datetime, timedelta

from django.core import checks
from django.utils import timezone

from jobqueue import compat
from jobqueue.testing import sample_tasks
from jobqueue.testing.conformance.base import Conformance

FLAGS = ("supports_defer", "supports_async_task", "supports_get_result", "supports_priority")


class DeclarationTests(Conformance):
    """Tests of ``validate_task``, ``using()``, the flags and ``check()``."""

    def test_the_flags_are_booleans(self) -> None:
        """Each capability flag is True or False."""
        for flag in FLAGS:
            with self.subTest(flag=flag):
                self.assertIsInstance(getattr(self.backend, flag), bool)

    def test_a_declared_task_has_the_class_of_the_backend(self) -> None:
        """The decorator builds the backend's ``task_class``."""
        task = self.declare(sample_tasks.takes_no_context)
        self.assertIs(type(task), self.backend.task_class)
        self.assertIsInstance(task, compat.Task)

    def test_a_function_inside_a_function_is_refused(self) -> None:
        """A task function must be found by its path."""

        def inner() -> None:
            raise AssertionError("never called")

        for function in (inner, lambda: None):
            with self.assertRaises(compat.InvalidTask):
                self.declare(function)

    def test_a_context_needs_an_argument_of_that_name(self) -> None:
        """A task that takes a context has ``context`` as its first argument."""
        with self.assertRaises(compat.InvalidTask):
            self.declare(sample_tasks.takes_no_context, takes_context=True)

    def test_a_priority_out_of_range_is_refused(self) -> None:
        """A priority is a whole number from -100 to 100."""
        for priority in (-101, 101, 1.5):
            with self.subTest(priority=priority), self.assertRaises(compat.InvalidTask):
                self.sample("echo").using(priority=priority)

    def test_the_whole_range_of_priorities_is_accepted_or_none_of_it(self) -> None:
        """The flag ``supports_priority`` agrees with what is accepted."""
        for priority in (-100, -1, 1, 100):
            with self.subTest(priority=priority):
                if self.backend.supports_priority:
                    self.assertEqual(self.sample("echo").using(priority=priority).priority, priority)
                else:
                    with self.assertRaises(compat.InvalidTask):
                        self.sample("echo").using(priority=priority)

    def test_run_after_is_accepted_or_refused_as_the_flag_says(self) -> None:
        """The flag ``supports_defer`` agrees with what is accepted."""
        later = timezone.now() + timedelta(hours=1)
        if self.backend.supports_defer:
            self.assertEqual(self.sample("echo").using(run_after=later).run_after, later)
        else:
            with self.assertRaises(compat.InvalidTask):
                self.sample("echo").using(run_after=later)

    def test_a_naive_run_after_is_refused(self) -> None:
        """A time without a zone is refused if the project uses time zones."""
        if timezone.is_naive(timezone.now()):
            self.skipTest("The project has USE_TZ = False.")
        with self.assertRaises(compat.InvalidTask):
            self.sample("echo").using(run_after=datetime(2030, 1, 1, 12))  # noqa: DTZ001 - that is the point

    def test_coroutines_are_accepted_or_refused_as_the_flag_says(self) -> None:
        """The flag ``supports_async_task`` agrees with what is accepted."""
        if self.backend.supports_async_task:
            self.declare(sample_tasks.coroutine_function)
        else:
            with self.assertRaises(compat.InvalidTask):
                self.declare(sample_tasks.coroutine_function)

    def test_a_queue_that_is_not_listed_is_refused(self) -> None:
        """A backend with QUEUES accepts only those; with an empty list it accepts any queue."""
        if self.backend.queues:
            with self.assertRaises(compat.InvalidTask):
                self.sample("echo").using(queue_name="no-such-queue")
        else:
            self.assertEqual(self.sample("echo").using(queue_name="no-such-queue").queue_name, "no-such-queue")

    def test_using_makes_a_new_task(self) -> None:
        """Options given by ``using()`` do not change the declared task."""
        task = self.sample("echo")
        queue_name = next(iter(sorted(self.backend.queues)), "another")
        changed = task.using(queue_name=queue_name)
        self.assertIsNot(changed, task)
        self.assertEqual((changed.queue_name, changed.func, changed.backend), (queue_name, task.func, self.backend_alias))
        self.assertEqual(task.queue_name, self.sample("echo").queue_name)

    def test_tasks_can_be_compared_and_hashed(self) -> None:
        """Two equal tasks are equal and find each other in a dict."""
        first, second = self.sample("echo"), self.sample("echo")
        self.assertEqual(first, second)
        self.assertEqual({first: 1}[second], 1)

    def test_the_check_returns_messages(self) -> None:
        """``check()`` takes no argument, returns check messages, and finds nothing serious in the project of the test."""
        messages = list(self.backend.check())
        for message in messages:
            self.assertIsInstance(message, checks.CheckMessage)
        self.assertEqual([message for message in messages if message.is_serious()], [])
