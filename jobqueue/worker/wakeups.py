"""Signals between the parts of one worker process. A part sends a signal, and need not know about the parts that receive it.

The receivers are called in the thread that sets the signal, so they must return at once.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any


class Signal(Enum):
    """A signal, with the values that it carries."""

    WORK = "there may be jobs to claim: the tenant, or None"
    SLOTS = "there are more slots"
    TENANT_SLOTS = "the slots of tenants were read: the slots of each tenant"
    FULL = "a claim found more jobs than slots"
    HANDED_OVER = "the next job of a target was handed over: the job, and the run that ended"
    UNKNOWN_JOBS = "this worker may own jobs that it does not know"
    ENDED = "the ends of runs were written: whether one of the jobs waits for a retry"
    STOP_REQUESTED = "a run of this worker is to stop"
    QUEUES = "pauses or limits of queues have changed"
    DUE = "a job is due soon"
    DUTIES = "a duty is free, or has new work"
    WORKERS = "an operator has asked a worker to be drained, or to start jobs again"
    STATE = "the state on the Workers page has changed"
    END = "the process may have to end"
    PARENT_STOPS = "the parent process requests the end"
    PARENT_GONE = "the parent process has ended"
    DEAD = "workers have died: the job because of which each was killed, or None"
    RECOVERED = "the jobs of dead workers were recovered: their identities"


class Wakeups:
    """The receivers of each signal."""

    def __init__(self) -> None:
        """Start without receivers."""
        self._receivers: dict[Signal, list[Callable[..., object]]] = {signal: [] for signal in Signal}

    def subscribe(self, signal: Signal, *receivers: Callable[..., object]) -> None:
        """Call the receivers with the values of each signal of this name."""
        self._receivers[signal] += receivers

    def set(self, signal: Signal, *values: Any) -> None:
        """Call the receivers of a signal. Any thread may call this."""
        for receiver in self._receivers[signal]:
            receiver(*values)

    def setter(self, signal: Signal) -> Callable[..., None]:
        """Return a function that sets a signal."""
        return partial(self.set, signal)
