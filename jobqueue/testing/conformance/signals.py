"""Tests of the three signals of django.tasks, which dashboards and logs rely on."""

# ruff: noqa: PT009 - for every runner of unittest's cases, so with their own assertions

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

from django.dispatch import Signal

from jobqueue import compat
from jobqueue.testing.conformance.base import STATUS, Conformance

NAMES = ("task_enqueued", "task_started", "task_finished")


class Heard(NamedTuple):
    """A call to a receiver: the signal, its arguments, and the status of the result at that time."""

    name: str
    sender: Any
    result: Any
    status: str


class SignalTests(Conformance):
    """Tests of the signals: which are sent, when, by which sender and with which result."""

    def test_an_enqueue_is_told_once(self) -> None:
        """``task_enqueued`` is sent once, by the backend's class, with the result."""
        with self.listening() as heard:
            result = self.sample("echo").enqueue(1)
            enqueued = [call for call in heard if call.name == "task_enqueued"]
        self.assertEqual([(call.sender, call.result.id, call.status) for call in enqueued], [(type(self.backend), result.id, "READY")])

    def test_a_life_is_told_in_order(self) -> None:
        """The signals for enqueued, started and finished are sent once each, in this order, with the status of that time."""
        for name, args, ending in (("echo", ("x",), "SUCCESSFUL"), ("fail", (), "FAILED")):
            with self.subTest(name):
                self.assert_told(name, args, ending)

    def test_the_life_of_a_coroutine_is_told_too(self) -> None:
        """An ``async def`` task sends the same signals."""
        self.needs_async()
        self.assert_told("aecho", ("x",), "SUCCESSFUL")

    def test_the_end_is_told_with_its_outcome(self) -> None:
        """``task_finished`` carries the return value, or the errors."""
        self.needs_signals()
        with self.listening() as heard:
            self.run_sample("echo", "value")
            self.run_sample("fail", "text")
        succeeded, failed = (call.result for call in heard if call.name == "task_finished")
        self.assertEqual(succeeded.return_value, "value")
        self.assertEqual([error.exception_class for error in failed.errors], [ValueError])

    def test_a_receiver_that_raises_harms_nobody(self) -> None:
        """The task is enqueued, runs and ends well, and the other receivers are called."""
        if not self.robust_signals:
            self.skipTest("The backend sends its signals with send().")
        self.needs_signals()
        with self.listening(failing=True) as heard:
            result = self.run_sample("echo", "fine")
        self.assertEqual((result.status, result.return_value), (STATUS.SUCCESSFUL, "fine"))
        self.assertEqual([call.name for call in heard], list(NAMES))

    def needs_signals(self) -> None:
        """Skip the test if the signals of a run do not reach this process."""
        self.needs_runs()
        if not self.hears_signals:
            self.skipTest("The worker is another process, whose signals do not reach this one.")

    def assert_told(self, name: str, args: tuple[Any, ...], ending: str) -> None:
        """Check the signals of one sample task."""
        self.needs_signals()
        with self.listening() as heard:
            result = self.run_sample(name, *args)
        sent = [(call.name, call.status) for call in heard]
        self.assertEqual(sent, list(zip(NAMES, ("READY", "RUNNING", ending), strict=True)))
        self.assertEqual({call.result.id for call in heard}, {result.id})
        self.assertEqual({call.sender for call in heard}, {type(self.backend)})

    @contextlib.contextmanager
    def listening(self, *, failing: bool = False) -> Iterator[list[Heard]]:
        """Record all three signals, from any thread; if `failing`, connect receivers that raise as well."""
        heard: list[Heard] = []
        signals: dict[str, Signal] = {name: getattr(compat.module("signals"), name) for name in NAMES}
        with contextlib.ExitStack() as stack:
            for name, signal in signals.items():
                if failing:
                    stack.enter_context(_connected(signal, _raises))
                stack.enter_context(_connected(signal, _listener(name, heard)))
            yield heard


def _listener(name: str, heard: list[Heard]) -> Any:
    lock = threading.Lock()

    def listen(sender: Any, task_result: Any, **more: Any) -> None:
        with lock:  # several workers may send a signal at the same time
            heard.append(Heard(name, sender, task_result, str(task_result.status)))

    return listen


def _raises(**arguments: Any) -> None:
    raise RuntimeError("a receiver that always raises")


@contextlib.contextmanager
def _connected(signal: Signal, receiver: Any) -> Iterator[None]:
    signal.connect(receiver, weak=False)
    try:
        yield
    finally:
        signal.disconnect(receiver)
