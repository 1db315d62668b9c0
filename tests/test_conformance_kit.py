"""The conformance kit finds the faults that it was made for: each backend here breaks one promise."""

import io
import unittest
from typing import Any

import pytest
from django.test import SimpleTestCase, override_settings

from jobqueue import compat
from jobqueue.testing import ImmediateBackend
from jobqueue.testing.conformance import TaskBackendConformance
from jobqueue.testing.inline import EnqueuedTask

SIGNALS = compat.module("signals")


class Changing(ImmediateBackend):
    """Change each result before the caller sees it."""

    changes: dict[str, Any] = {}

    def _accepted(self, kept: EnqueuedTask) -> Any:
        result = super()._accepted(kept)
        kept.update(**self.changes)
        return result


class LongIds(Changing):
    changes = {"id": "x" * 64}


class NumberIds(Changing):
    changes = {"id": 7}


class ForgetsWorkers(Changing):
    changes = {"worker_ids": []}


class SwallowsErrors(Changing):
    changes = {"errors": [], "status": compat.TaskResultStatus.SUCCESSFUL}


class ShortErrors(Changing):
    changes = {"errors": [compat.TaskError(exception_class_path="builtins.Exception", traceback="")]}


class ForgetsItsAlias(Changing):
    changes = {"backend": "other"}


class ForgetsTimes(Changing):
    changes = {"finished_at": None}


class SendsInstances(ImmediateBackend):
    def _accepted(self, kept: EnqueuedTask) -> Any:
        SIGNALS.task_enqueued.send_robust(self, task_result=kept.result)
        return super()._accepted(kept)


class RefusesPriorities(ImmediateBackend):
    supports_priority = False


class LiesAboutDeferring(ImmediateBackend):
    def validate_task(self, task: Any) -> None:
        if task.run_after is not None:
            raise compat.InvalidTask("no")
        super().validate_task(task)


class AcceptsAnything(ImmediateBackend):
    def validate_task(self, task: Any) -> None:
        """Accept."""


class RunsTwice(ImmediateBackend):
    def _accepted(self, kept: EnqueuedTask) -> Any:
        super()._accepted(kept)
        return super()._accepted(kept)


class RunsEarly(ImmediateBackend):
    def _accepted(self, kept: EnqueuedTask) -> Any:
        result = super()._accepted(kept)
        self.run_deferred()
        return result


class ChecksBadly(ImmediateBackend):
    def check(self, **options: Any) -> Any:
        return ["wrong"]


class Judged(TaskBackendConformance, SimpleTestCase):
    __test__ = False
    backend_alias = "judged"
    runs_at_once = True
    survives_everything = False

    def run_enqueued(self) -> None:
        """Do nothing: the task has run."""


def failures(backend: type) -> set[str]:
    """Return the names of the tests that the backend fails."""
    here = f"{backend.__module__}.{backend.__qualname__}"
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(Judged)
    tasks = {"default": {"BACKEND": "jobqueue.testing.DummyBackend"}, "judged": {"BACKEND": here}}
    with override_settings(TASKS=tasks):
        outcome = unittest.TextTestRunner(io.StringIO()).run(suite)
    assert outcome.testsRun > 40
    failed = [getattr(test, "test_case", test) for test, _ in (*outcome.failures, *outcome.errors)]
    return {test.id().rpartition(".")[2] for test in failed}


def test_a_sound_backend_passes() -> None:
    assert failures(ImmediateBackend) == set()


def test_a_backend_that_says_what_it_cannot_do_passes() -> None:
    assert failures(RefusesPriorities) == set()


@pytest.mark.parametrize(
    ("backend", "finding"),
    [
        (LongIds, "test_ids_are_short_text_and_unique"),
        (NumberIds, "test_ids_are_short_text_and_unique"),
        (ForgetsWorkers, "test_a_run_is_counted_with_its_worker"),
        (SwallowsErrors, "test_a_task_that_raises_has_failed"),
        (ShortErrors, "test_an_error_names_its_class_and_its_place"),
        (ForgetsItsAlias, "test_the_result_tells_what_was_enqueued"),
        (ForgetsTimes, "test_the_times_of_a_run_are_in_order"),
        (SendsInstances, "test_an_enqueue_is_told_once"),
        (LiesAboutDeferring, "test_run_after_is_accepted_or_refused_as_the_flag_says"),
        (AcceptsAnything, "test_a_queue_that_is_not_listed_is_refused"),
        (RunsTwice, "test_every_task_runs_once"),
        (RunsEarly, "test_what_is_deferred_does_not_run_early"),
        (ChecksBadly, "test_the_check_returns_messages"),
    ],
)
def test_a_broken_promise_is_found(backend: type, finding: str) -> None:
    assert finding in failures(backend)
