"""One run of one job inside this process, and the register of all of them.

A run can be interrupted from other threads until it is closed. The lock makes that exact: an exception is thrown into the
thread only while the thread is inside the very task, and closing takes back one that was thrown but not yet raised.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from enum import Enum
from typing import TYPE_CHECKING, Any

from jobqueue import texts
from jobqueue.db import Claimed, Lease
from jobqueue.exceptions import Interrupted, InvalidArgumentValue, LeaseLost
from jobqueue.tasks.registry import Entry

if TYPE_CHECKING:
    from jobqueue.lifecycle.outcome import Outcome
    from jobqueue.worker.errands import Errand
    from jobqueue.worker.lanes import Lane
    from jobqueue.worker.phases import Pipeline


class Reason(Enum):
    """Say why a run is to stop; a later one in this order beats an earlier one."""

    USER = 1
    SHUTDOWN = 2
    LOST = 3


MESSAGES = {
    Reason.USER: "Job was interrupted by user",
    Reason.SHUTDOWN: "Job was interrupted by shutdown of its worker",
    Reason.LOST: "The lease was lost: another worker may run the job",
}


class Run:
    """Hold the state of one run; it is what a task's context talks to."""

    # Defaults on the class: most runs are over before they need any of them, and making a run must be cheap.
    entry: Entry | None = None
    began: float | None = None
    ended: float | None = None
    value: Any = None
    raised: BaseException | None = None
    returned = thrown = abandoned = _closed = False
    reason: Reason | None = None
    interrupted_at = 0.0
    thread_id: int | None = None
    cancel_async: Callable[[], object] | None = None
    marked_at: float | None = None
    dirty_since: float | None = None
    failed_since: float | None = None
    progress: int | None = None
    message: str | None = None
    metadata: str | None = None
    saved: threading.Event | None = None
    refused = False  # what it was to save
    saves_with_outcome = False
    errand: Errand[Any] | None = None
    pipeline: Pipeline | None = None
    committed: Outcome | None = None
    outcome: Outcome | None = None
    chained = 0  # how many runs of its target went before it without a claim
    chained_since = 0.0
    _signal: threading.Event | None = None

    def __init__(self, job: Claimed, flush: Callable[[Run], None], read_result: Callable[[Run], Any], lane: Lane | None = None) -> None:
        """Begin with a claimed job; `flush` asks for its marks to be written soon, `lane` has the slot that it occupies."""
        self.job, self.lane = job, lane
        self.lease = Lease(job.id, job.lease_token)
        self.flush, self.read_result = flush, read_result
        self.claimed_at = time.monotonic()
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Note that the calling thread enters the task now."""
        self.thread_id = threading.get_ident()
        self.began = time.monotonic()

    def interrupt(self, reason: Reason) -> bool:
        """Tell the run to stop: the flag at once, a real cancellation for a coroutine; return whether it was told anew."""
        with self._lock:  # against the end of the run, and against a stronger reason at the same time
            if self._closed or (self.reason is not None and self.reason.value >= reason.value):
                return False
            if self.reason is None:
                self.interrupted_at = time.monotonic()
            self.reason = reason
            if self._signal is not None:
                self._signal.set()
            if self.cancel_async is not None:
                self.cancel_async()
            return True

    def withdraw(self) -> None:
        """Take back a person's request that has not reached the task yet."""
        with self._lock:
            if self.reason is Reason.USER and not self.thrown and self.cancel_async is None:
                self.reason = None
                if self._signal is not None:
                    self._signal.clear()

    def throw(self) -> None:
        """Raise the interruption in the task's thread at its next bytecode, while it is inside this very task."""
        with self._lock:  # the thread cannot leave the task meanwhile: closing takes this lock
            if not self._closed and self.thread_id is not None and not self.thrown and self.reason is not None:
                self.thrown = True
                kind = LeaseLost if self.reason is Reason.LOST else Interrupted
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.thread_id), ctypes.py_object(kind))

    def abandon(self) -> bool:
        """Give up on the run, whose end then counts for nothing; return False where it ends by itself at this moment."""
        with self._lock:
            self.abandoned = not self._closed
            return self.abandoned

    def close(self) -> None:
        """End the run for everybody who would interrupt it; called by the task's own thread."""
        while True:
            try:
                with self._lock:
                    self._closed = True
                if self.thrown:  # perhaps not raised yet: it must not hit the next job
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(threading.get_ident()), None)
            except Interrupted:
                continue  # it was raised here, late: absorbed
            return

    @property
    def is_lost(self) -> bool:
        """Whether another worker may run the job."""
        return self.reason is Reason.LOST

    # What the context needs

    def interruption(self) -> Interrupted | None:
        """Return what the run is to be stopped with, or None."""
        if self.reason is None:
            return None
        kind = LeaseLost if self.reason is Reason.LOST else Interrupted
        return kind(MESSAGES[self.reason])

    def wait(self, seconds: float) -> None:
        """Rest so long, or until the run is to stop."""
        with self._lock:  # an interrupt between the look and the wait must not be missed
            if self.reason is not None:
                return
            if self._signal is None:
                self._signal = threading.Event()
        self._signal.wait(seconds)

    def report(self, progress: int, message: str | None) -> None:
        """Keep the newest progress, to be written soon."""
        if message is not None:
            message = self.message = texts.clean(message[:1000])
        self.progress = progress if self.pipeline is None else self.pipeline.report(progress, message)
        if self.dirty_since is None:
            self.dirty_since = time.monotonic()
            self.flush(self)

    def save(self, metadata: str) -> None:
        """Have the metadata written, and wait for it."""
        self.metadata = metadata
        if self.saves_with_outcome:  # nobody else can write while this task's transaction is open
            return
        self.refused, self.saved = False, threading.Event()
        self.dirty_since = time.monotonic()
        self.flush(self)
        while not self.saved.wait(0.5):
            interruption = self.interruption()
            if interruption is not None:
                raise interruption
        self.saved = None
        if self.refused:
            raise InvalidArgumentValue("The metadata cannot be stored: the database refuses it. The worker's log says why.")

    def result(self) -> Any:
        """Return the job's task result as the database has it."""
        return self.read_result(self)


class Runs:
    """Register the runs of this process: claimed, and their outcome not yet acknowledged. These leases are renewed."""

    def __init__(self) -> None:
        """Begin empty."""
        self._runs: dict[Lease, Run] = {}
        self._lock = threading.Lock()
        self.handing_over = threading.Lock()
        """Held from the commit that takes jobs over until they are registered here."""

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._runs)

    def __iter__(self) -> Iterator[Run]:
        """Walk over a copy: other threads add and remove."""
        return iter(list(self._runs.values()))

    def add(self, runs: list[Run]) -> None:
        """Register claimed jobs."""
        with self._lock:  # the dispatcher and the finisher add, the finisher removes, and the lanes are counted
            for run in runs:
                self._runs[run.lease] = run
                if (lane := run.lane) is not None:
                    lane.busy += 1
                    lane.peak = max(lane.peak, lane.busy)

    def get(self, lease: Lease) -> Run | None:
        """Return the run of a lease."""
        return self._runs.get(lease)

    def remove(self, leases: list[Lease]) -> None:
        """Forget runs whose outcome was acknowledged or refused."""
        with self._lock:
            for lease in leases:
                run = self._runs.pop(lease, None)
                if run is not None and run.lane is not None:
                    run.lane.busy -= 1
