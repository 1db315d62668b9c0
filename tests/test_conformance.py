"""The backends keep what django.tasks promises: jobqueue's with a real worker and in one thread, those for tests, and Django's own."""

import threading

import pytest
from django.test import SimpleTestCase, TestCase, TransactionTestCase, override_settings

from jobqueue import compat
from jobqueue.testing import run_until_idle
from jobqueue.testing.conformance import TaskBackendConformance
from jobqueue.testing.conformance.endings import EndingTests
from jobqueue.testing.conformance.running import RunTests
from jobqueue.testing.conformance.signals import SignalTests
from jobqueue.testing.conformance.transactions import TransactionTests
from jobqueue.worker.process.supervisor import Supervisor

OURS = "jobqueue.backends.DatabaseBackend"
TASKS = {
    "default": {"BACKEND": OURS, "QUEUES": ["default", "reports"]},
    "immediate": {"BACKEND": "jobqueue.testing.ImmediateBackend", "QUEUES": ["default", "reports"]},
    "dummy": {"BACKEND": "jobqueue.testing.DummyBackend"},
    "reference": {"BACKEND": f"{compat.PACKAGE}.backends.immediate.ImmediateBackend"},
}


@override_settings(TASKS=TASKS)
class TestDatabaseBackend(TaskBackendConformance, TestCase):
    """Jobs run in the calling thread, in the test's transaction."""

    rolls_back_with = "default"

    def run_enqueued(self) -> None:
        run_until_idle()


@pytest.mark.long
@override_settings(TASKS=TASKS)
class TestDatabaseBackendWithAWorker(RunTests, EndingTests, SignalTests, TransactionTests, TransactionTestCase):
    """Jobs run in a complete worker, with all of its threads: the parts of the kit that test runs."""

    rolls_back_with = "default"
    runs_in_order = False  # its threads work side by side

    def run_enqueued(self) -> None:
        supervisor = Supervisor(once=True)
        thread = threading.Thread(target=supervisor.run, name="worker")
        thread.start()
        thread.join(60)
        assert not thread.is_alive(), "The worker has not ended."


@override_settings(TASKS=TASKS)
class TestImmediateBackend(TaskBackendConformance, SimpleTestCase):
    """The immediate backend keeps the same promises."""

    backend_alias = "immediate"
    runs_at_once = True
    survives_everything = False  # Ctrl-C ends a test run

    def run_enqueued(self) -> None:
        """Do nothing: the task has run."""


@override_settings(TASKS=TASKS)
class TestDummyBackend(TaskBackendConformance, SimpleTestCase):
    """The dummy backend keeps the promises that do not concern runs."""

    backend_alias = "dummy"
    runs = False


@override_settings(TASKS=TASKS)
class TestReferenceBackend(TaskBackendConformance, SimpleTestCase):
    """The kit asks nothing that Django's own backend does not do, but where an attribute says so."""

    backend_alias = "reference"
    runs_at_once = True
    survives_everything = False
    strict_arguments = False
    robust_signals = False

    def run_enqueued(self) -> None:
        """Do nothing: the task has run."""
