"""Test a backend of django.tasks: a mixin for Django's test cases, with one test for each guarantee of a backend.

It does not depend on this package's own backend, and runs on Django 5.2 with the backport, 6.0 and 6.1::

    class MyBackendTests(TaskBackendConformance, TransactionTestCase):
        backend_alias = "default"
        rolls_back_with = "default"

        def run_enqueued(self):
            call_command("my_worker", "--until-idle")

The class attributes of `base.Settings` describe the backend. Tests that do not apply are skipped with the reason.
"""

from jobqueue.testing.conformance.arguments import ArgumentTests
from jobqueue.testing.conformance.declaration import DeclarationTests
from jobqueue.testing.conformance.endings import EndingTests
from jobqueue.testing.conformance.enqueue import EnqueueTests
from jobqueue.testing.conformance.results import ResultTests
from jobqueue.testing.conformance.running import RunTests
from jobqueue.testing.conformance.signals import SignalTests
from jobqueue.testing.conformance.transactions import TransactionTests

__all__ = ["TaskBackendConformance"]


class TaskBackendConformance(
    DeclarationTests, EnqueueTests, ArgumentTests, ResultTests, RunTests, EndingTests, SignalTests, TransactionTests
):
    """All conformance tests for the backend `backend_alias`; a test case must inherit from a Django test case, too."""
