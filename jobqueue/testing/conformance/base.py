"""The base of all parts of the kit: the attributes that describe the backend, and helpers that enqueue, run and read results."""

# ruff: noqa: PT009 - for every runner of unittest's cases, so with their own assertions

from __future__ import annotations

import unittest
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.utils import timezone

from jobqueue import compat
from jobqueue.testing import sample_tasks

if TYPE_CHECKING:
    Base = unittest.TestCase
else:
    Base = object

STATUS: Any = compat.TaskResultStatus


class Settings(Base):
    """The backend under test and its properties. The flags ``supports_…`` are read from the backend itself."""

    backend_alias = "default"
    """The backend in ``TASKS``."""

    runs = True
    """Whether tasks run at all; a backend that only stores them says False."""

    runs_at_once = False
    """Whether ``enqueue`` itself runs the task."""

    runs_in_order = True
    """Whether `run_enqueued` runs one task at a time, so that priority shows in the order."""

    survives_everything = True
    """Whether SystemExit, KeyboardInterrupt and their like end the task and not its worker."""

    strict_arguments = True
    """Whether arguments that JSON would change or that a database refuses are refused; Django's own backends say False."""

    robust_signals = True
    """Whether a receiver that raises affects neither the caller nor the other receivers; Django's own backends say False."""

    hears_signals = True
    """Whether the signals of a run reach this process; False if `run_enqueued` starts another process."""

    rolls_back_with = ""
    """The alias of the database whose transactions an enqueue takes part in; empty if it takes part in none."""

    def run_enqueued(self) -> None:
        """Run the enqueued tasks that may run now, and return when all of them have ended."""
        raise NotImplementedError("Override this method to run the enqueued tasks, or set runs = False.")


class Conformance(Settings):
    """The helper methods of the tests."""

    @property
    def backend(self) -> Any:
        """The backend under test."""
        return compat.task_backends()[self.backend_alias]

    def sample(self, name: str) -> Any:
        """Return a sample task on the backend; skip the test if the backend cannot have it."""
        task = getattr(sample_tasks, name)
        if not isinstance(task, compat.Task):
            self.skipTest(f"The default backend refuses the task {name}.")
        return task.using(backend=self.backend_alias)

    def declare(self, function: Callable[..., Any], **options: Any) -> Any:
        """Declare a task on the backend with the decorator of django.tasks."""
        return compat.module("").task(backend=self.backend_alias, **options)(function)

    def needs_runs(self) -> None:
        """Skip the test if the backend runs no tasks."""
        if not self.runs:
            self.skipTest("The backend runs nothing.")

    def needs_later_runs(self) -> None:
        """Skip the test if the backend runs a task when it is enqueued."""
        if self.runs_at_once:
            self.skipTest("The backend runs a task when it is enqueued.")

    def needs_results(self) -> None:
        """Skip the test if results cannot be read again."""
        if not self.backend.supports_get_result:
            self.skipTest("The backend does not claim supports_get_result.")

    def needs_async(self) -> None:
        """Skip the test if coroutines are not supported."""
        if not self.backend.supports_async_task:
            self.skipTest("The backend does not claim supports_async_task.")

    def look(self, result: Any) -> Any:
        """Refresh a result if the backend supports it, and return it."""
        if self.backend.supports_get_result:
            result.refresh()
        return result

    def run_sample(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Enqueue a sample task, run the enqueued tasks, and return its result, which has ended."""
        self.needs_runs()
        result = self.sample(name).enqueue(*args, **kwargs)
        self.run_enqueued()
        self.assertTrue(self.look(result).is_finished, f"{name} was enqueued and run, but its status is {result.status}.")
        return result

    def assert_recent(self, moment: datetime | None) -> None:
        """Check that a time is not older than a minute, and that it is aware if the project uses time zones."""
        assert moment is not None  # noqa: S101 - for the type checker, too
        now = timezone.now()
        self.assertEqual(timezone.is_aware(moment), timezone.is_aware(now))
        self.assertLess(abs(now - moment), timedelta(minutes=1))
