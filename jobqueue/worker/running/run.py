"""One run of one job in this process, and the register of all runs.

Other threads can interrupt a run until it is closed. A lock makes that exact: an exception is thrown into the thread only while the
thread is inside this task, and closing takes back an exception that was thrown but not yet raised. While the task is in a call of its
context, which may hold a lock that other threads need, a thrown exception is held back until the end of the call.

A time limit stops a run once, with an exception that is an ordinary error. An interrupt stops it for good, and overrides a time limit.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from jobqueue.core.masking import Mask
from jobqueue.core.time_limits import exceeded
from jobqueue.db import Claimed, Lease
from jobqueue.declared.registry import Entry
from jobqueue.exceptions import Interrupted, InvalidArgumentValue, LeaseLost, TimeLimitExceeded
from jobqueue.worker.running.arguments import mask_of_run, shown_message
from jobqueue.worker.running.reasons import MESSAGES, Reason
from jobqueue.worker.running.shield import Shield, inside

if TYPE_CHECKING:
    from jobqueue.lifecycle.outcome import Outcome
    from jobqueue.worker.running.lanes import Lane
    from jobqueue.worker.running.phases import Pipeline
    from jobqueue.worker.running.side_writes import SideWrite


__all__ = ["MESSAGES", "Reason", "Run", "Runs"]


class Run:
    """The state of one run; the task's context works on it."""

    # Defaults on the class: most runs end before they need any of them, and creating a run must be cheap.
    entry: Entry | None = None
    began: float | None = None
    ended: float | None = None
    value: Any = None
    raised: BaseException | None = None
    returned = thrown = abandoned = _closed = False
    reason: Reason | None = None
    interrupted_at = 0.0
    thread_id: int | None = None
    loop_id: int | None = None
    cancel_async: Callable[[], object] | None = None
    marked_at: float | None = None
    dirty_since: float | None = None
    failed_since: float | None = None
    progress: int | None = None
    message: str | None = None
    metadata: str | None = None
    saved: threading.Event | None = None
    refused = False  # the database refused what `save` was to write
    saves_with_outcome = False
    errands: deque[SideWrite[Any]] | None = None
    pipeline: Pipeline | None = None
    committed: Outcome | None = None
    outcome: Outcome | None = None
    chained = 0  # the number of hand-overs of its target since the last claim
    chained_since = 0.0
    unreadable: Exception | None = None  # why the job's row cannot be read
    limit: float | None = None
    watch: Callable[[Run], None] | None = None  # called when a run with a time limit begins
    expired = False  # the limit was reached, and the task was notified
    overdue = False  # the task continued for long after that, and the process ends because of it
    slot_lost = False  # no thread replaces the thread that the run occupies
    place = ""  # where its thread was when the run was abandoned
    _mask: Mask | None = None
    _signal: threading.Event | None = None
    _shielded = _owed = False

    def __init__(self, job: Claimed, flush: Callable[[Run], None], read_result: Callable[[Run], Any], lane: Lane | None = None) -> None:
        """Create the run of a claimed job; `flush` requests that its marks are written soon, `lane` has the slot that it occupies."""
        self.job, self.lane = job, lane
        self.lease = Lease(job.id, job.lease_token)
        self.flush, self.read_result = flush, read_result
        self.claimed_at = time.monotonic()
        # Reentrant: the garbage collector can run while the lock is held, and what it collects can write to the log (see `shield_log`).
        self._lock, self._saving = threading.RLock(), threading.Lock()

    def begin(self) -> None:
        """Record that the calling thread enters the task now; raise if the time limit is already over."""
        self.began, inside.run = time.monotonic(), self
        if self.watch is None:
            self.thread_id = threading.get_ident()
            return
        self.watch(self)  # before anything can be thrown: it takes a lock that other threads need
        with self._lock:
            self.thread_id = threading.get_ident()
            over = self.expired
        if over:
            raise exceeded(self.limit)

    def begin_in_loop(self) -> None:
        """Record that the event loop enters the coroutine now."""
        self.began, self.loop_id = time.monotonic(), threading.get_ident()
        if self.watch is not None:
            self.watch(self)

    def interrupt(self, reason: Reason) -> bool:
        """Request that the run stops: set the flag, and cancel a coroutine; return whether the request is new."""
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

    def expire(self) -> bool:
        """Notify the run that its time limit is over, unless it is to stop anyway; return whether it was notified."""
        with self._lock:
            if self._closed or self.reason is not None:
                return False
            self.expired = True
            if self._signal is not None:
                self._signal.set()
            if self.cancel_async is not None:
                self.cancel_async()
            elif self.thread_id is not None:
                self._raise_in_thread(TimeLimitExceeded)
            return True

    def withdraw(self) -> None:
        """Withdraw an operator's request that has not reached the task yet."""
        with self._lock:
            if self.reason is Reason.USER and not self.thrown and self.cancel_async is None:
                self.reason = None
                if self._signal is not None:
                    self._signal.clear()

    def throw(self) -> None:
        """Raise the interrupt in the task's thread at its next bytecode, while the thread is inside this task."""
        with self._lock:  # the thread cannot leave the task meanwhile: closing takes this lock
            if not self._closed and self.thread_id is not None and not self.thrown and self.reason is not None:
                self.thrown = True
                self._raise_in_thread(LeaseLost if self.reason is Reason.LOST else Interrupted)

    def _raise_in_thread(self, kind: type[BaseException]) -> None:
        """Raise an exception in the task's thread; the caller holds the lock."""
        if self._shielded:
            self._owed = True
        else:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.thread_id or 0), ctypes.py_object(kind))

    def abandon(self) -> bool:
        """Abandon the run, whose own outcome is then ignored; return False if the run is ending by itself."""
        with self._lock:
            self.abandoned = not self._closed
            return self.abandoned

    def close(self) -> None:
        """End the run: nothing can interrupt it any more; called by the task's own thread."""
        while True:
            try:
                with self._lock:
                    self._closed, inside.run = True, None
                if self.thrown or self.expired:  # perhaps not raised yet: it must not hit the next job
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(threading.get_ident()), None)
            except (Interrupted, TimeLimitExceeded):
                continue  # it was raised here, late: ignore it
            return

    @property
    def closed(self) -> bool:
        """Whether nothing can stop the run any more: it is ending by itself, or has ended."""
        return self._closed

    @property
    def is_lost(self) -> bool:
        """Whether the lease was lost, so that another worker may run the job."""
        return self.reason is Reason.LOST

    # What the context needs

    def interruption(self) -> Interrupted | None:
        """Return the exception with which the run is to stop, or None."""
        if self.reason is None:
            return None
        kind = LeaseLost if self.reason is Reason.LOST else Interrupted
        return kind(MESSAGES[self.reason])

    def due(self) -> BaseException | None:
        """Return the exception with which a call of the context is to end: the interrupt, or the time limit if it is over by now."""
        return self.interruption() or (exceeded(self.limit) if self._owed else None)

    def shield(self) -> Shield:
        """Return a context manager for jobqueue's code in the task's thread: an exception thrown inside it is raised at its end."""
        return Shield(self)

    def wait(self, seconds: float) -> None:
        """Wait for `seconds`, or until the run is to stop; raise if its time limit is reached meanwhile."""
        with self.shield():
            with self._lock:  # an interrupt between the check and the wait must not be missed
                if self.reason is not None or self._owed:
                    return
                expired = self.expired
                if self._signal is None:
                    self._signal = threading.Event()
                else:
                    self._signal.clear()  # set by a time limit that the task has handled
            self._signal.wait(seconds)
        if self.expired and not expired:  # in a thread that the task has started
            raise exceeded(self.limit)

    def report(self, progress: int, message: str | None, at: int | None = None) -> None:
        """Store the newest progress in memory, to be written soon."""
        with self.shield():
            if message is not None:
                message = self.message = shown_message(message, self.mask)
            self.progress = progress if self.pipeline is None else self.pipeline.report(progress, message, at)
            if self.dirty_since is None:
                self.dirty_since = time.monotonic()
                self.flush(self)

    @property
    def mask(self) -> Mask:
        """The mask that hides the secrets of this job; created for the first text to show, which most runs never have."""
        if self._mask is None:
            self._mask = mask_of_run(self.job, self.entry)
        return self._mask

    def save(self, metadata: str) -> None:
        """Request that the metadata is written, and wait for it."""
        with self.shield():
            self.metadata = metadata
            with self._saving:  # one thread of the task after the other
                self._save()

    def _save(self) -> None:
        if self.saves_with_outcome:  # no other connection can write while this task's transaction is open
            return
        self.refused, self.saved = False, threading.Event()
        self.dirty_since = time.monotonic()
        self.flush(self)
        while not self.saved.wait(0.5):
            if (due := self.due()) is not None:
                raise due
            if self._closed:  # in a thread that the task has left
                raise InvalidArgumentValue("The metadata is not stored: the run has ended.")
        self.saved = None
        if self.refused:
            raise InvalidArgumentValue("The metadata cannot be stored: the database refuses it. The worker's log says why.")

    def result(self) -> Any:
        """Return the job's task result as the database has it."""
        return self.read_result(self)


class Runs:
    """The register of this process's runs whose outcome is not acknowledged yet. Their leases are renewed."""

    def __init__(self) -> None:
        """Create an empty register."""
        self._runs: dict[Lease, Run] = {}
        self._lock = threading.Lock()
        self.handing_over = threading.Lock()
        """Held from the commit that hands jobs over until they are registered here."""

    def __len__(self) -> int:
        """Return the number of runs."""
        return len(self._runs)

    def __iter__(self) -> Iterator[Run]:
        """Iterate over a copy: other threads add and remove runs."""
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
        """Return the run of a lease, or None."""
        return self._runs.get(lease)

    def remove(self, leases: list[Lease]) -> None:
        """Remove the runs whose outcome was acknowledged or refused."""
        with self._lock:
            for lease in leases:
                run = self._runs.pop(lease, None)
                if run is not None and run.lane is not None:
                    run.lane.busy -= 1
