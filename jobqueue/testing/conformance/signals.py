"""The three signals of django.tasks, on which dashboards and logs are built."""

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
    """Keep what one receiver was told, and how the result stood then."""

    name: str
    sender: Any
    result: Any
    status: str


class SignalTests(Conformance):
    """Judge which signals are sent, when, by whom and with what."""

    def test_an_enqueue_is_told_once(self) -> None:
        """``task_enqueued`` comes once, from the backend's class, with the result."""
        with self.listening() as heard:
            result = self.sample("echo").enqueue(1)
            enqueued = [one for one in heard if one.name == "task_enqueued"]
        self.assertEqual([(one.sender, one.result.id, one.status) for one in enqueued], [(type(self.backend), result.id, "READY")])

    def test_a_life_is_told_in_order(self) -> None:
        """Enqueued, started, finished: each once, in this order, with the status of the moment."""
        for name, args, ending in (("echo", ("x",), "SUCCESSFUL"), ("fail", (), "FAILED")):
            with self.subTest(name):
                self.assert_told(name, args, ending)

    def test_the_life_of_a_coroutine_is_told_too(self) -> None:
        """An ``async def`` task is told like any other."""
        self.needs_async()
        self.assert_told("aecho", ("x",), "SUCCESSFUL")

    def test_the_end_is_told_with_its_outcome(self) -> None:
        """``task_finished`` brings the return value, or the errors."""
        self.needs_signals()
        with self.listening() as heard:
            self.run_sample("echo", "value")
            self.run_sample("fail", "text")
        good, bad = (one.result for one in heard if one.name == "task_finished")
        self.assertEqual(good.return_value, "value")
        self.assertEqual([error.exception_class for error in bad.errors], [ValueError])

    def test_a_receiver_that_raises_harms_nobody(self) -> None:
        """The task is enqueued, runs and ends well, and the other receivers are told."""
        if not self.robust_signals:
            self.skipTest("The backend sends its signals with send().")
        self.needs_signals()
        with self.listening(failing=True) as heard:
            result = self.run_sample("echo", "fine")
        self.assertEqual((result.status, result.return_value), (STATUS.SUCCESSFUL, "fine"))
        self.assertEqual([one.name for one in heard], list(NAMES))

    def needs_signals(self) -> None:
        """Skip the test where the signals of a run cannot be heard."""
        self.needs_runs()
        if not self.hears_signals:
            self.skipTest("The worker is another process, whose signals are not heard here.")

    def assert_told(self, name: str, args: tuple[Any, ...], ending: str) -> None:
        """Check what is told of one sample task."""
        self.needs_signals()
        with self.listening() as heard:
            result = self.run_sample(name, *args)
        told = [(one.name, one.status) for one in heard]
        self.assertEqual(told, list(zip(NAMES, ("READY", "RUNNING", ending), strict=True)))
        self.assertEqual({one.result.id for one in heard}, {result.id})
        self.assertEqual({one.sender for one in heard}, {type(self.backend)})

    @contextlib.contextmanager
    def listening(self, *, failing: bool = False) -> Iterator[list[Heard]]:
        """Hear all three signals, in whatever thread they are sent; with `failing`, beside receivers that raise."""
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
        with lock:  # several workers may tell at once
            heard.append(Heard(name, sender, task_result, str(task_result.status)))

    return listen


def _raises(**told: Any) -> None:
    raise RuntimeError("a receiver that always raises")


@contextlib.contextmanager
def _connected(signal: Signal, receiver: Any) -> Iterator[None]:
    signal.connect(receiver, weak=False)
    try:
        yield
    finally:
        signal.disconnect(receiver)
