"""A complete worker in a thread of the test's process, and receivers that misbehave."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from django.db import connections
from django.dispatch import Signal

from jobqueue.models import Job
from jobqueue.worker.process.supervisor import Supervisor

PATIENCE_SECONDS = 20.0


@contextlib.contextmanager
def working() -> Iterator[Supervisor]:
    """Run a worker until the block ends; it must end in time."""
    supervisor = Supervisor()
    thread = threading.Thread(target=supervisor.run, name="worker", daemon=True)
    thread.start()
    try:
        yield supervisor
    finally:
        supervisor.stop()
        thread.join(PATIENCE_SECONDS)
        connections.close_all()
        assert not thread.is_alive(), "the worker ends"


@contextlib.contextmanager
def connected(signal: Signal, receiver: Callable[..., Any]) -> Iterator[None]:
    """Connect a receiver for the block."""
    signal.connect(receiver, weak=False)
    try:
        yield
    finally:
        signal.disconnect(receiver)


class Hang:
    """A receiver that does not return before the test ends, unless the test itself calls it."""

    def __init__(self) -> None:
        self.entered, self.released = threading.Event(), threading.Event()

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        if threading.current_thread() is threading.main_thread():
            return
        self.entered.set()
        self.released.wait(60)


def until(happened: Callable[[], bool], what: str = "", seconds: float = PATIENCE_SECONDS) -> float:
    """Wait until something has happened; return after how many seconds."""
    began = time.monotonic()
    while not happened():
        assert time.monotonic() - began < seconds, f"not within {seconds} s: {what}"
        time.sleep(0.01)
    return time.monotonic() - began


def ended(*jobs: Any, seconds: float = PATIENCE_SECONDS) -> list[str]:
    """Wait until jobs have ended; return their statuses, in order."""
    ids = [job.pk if isinstance(job, Job) else job.job_id for job in jobs]

    def statuses() -> dict[int, str]:
        return dict(Job.objects.filter(pk__in=ids).values_list("pk", "status"))

    until(lambda: set(statuses().values()) <= {"SUCCESS", "ERROR", "CANCELED"}, f"{statuses()}", seconds)
    found = statuses()
    return [found[job_id] for job_id in ids]
