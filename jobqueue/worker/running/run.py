"""One run of one job in this process, and the register of all runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from jobqueue.core.masking import Mask
from jobqueue.core.time_limits import exceeded
from jobqueue.db import Claimed, Lease
from jobqueue.declared.registry import RegisteredTask
from jobqueue.exceptions import InvalidArgumentValue, JobQueueError
from jobqueue.worker.forked import refuse_in_child
from jobqueue.worker.running.arguments import mask_of_run, shown_message
from jobqueue.worker.running.interruption import Interruption, inside
from jobqueue.worker.running.progress import Progress
from jobqueue.worker.running.reasons import MESSAGES, Reason
from jobqueue.worker.running.side_writes import OVER, SideWrites

if TYPE_CHECKING:
    from jobqueue.lifecycle.outcome import Outcome
    from jobqueue.worker.running.phases import PhaseStore, Pipeline
    from jobqueue.worker.running.run_log import RunLog
    from jobqueue.worker.running.slots import RunLane

__all__ = ["MESSAGES", "Reason", "Run", "Runs", "SlotUse"]

T = TypeVar("T")
_lease: Callable[[tuple[int, int]], Lease] = partial(tuple.__new__, Lease)  # takes half as long as the constructor of the named tuple


class SlotUse(NamedTuple):
    """The use of a slot by one target: the number of hand-overs to the next job of the target, and the start of the use."""

    hand_overs: int
    since: float


class Run(Interruption):
    """One run: the job, its task, and what the task returned or raised. The task's context works on it."""

    # Defaults on the class: most runs end before they need any of them, and creating a run must be cheap.
    entry: RegisteredTask | None = None
    began: float | None = None
    ended: float | None = None
    value: Any = None
    raised: BaseException | None = None
    returned = False
    unreadable: Exception | None = None  # why the job's row cannot be read
    outcome: Outcome | None = None  # until the executor returns it
    committed: Outcome | None = None  # written already, in the task's own transaction
    failed_since: float | None = None  # when the first try to write the outcome failed
    loop_id: int | None = None
    watch: Callable[[Run], None] | None = None  # called when a run with a time limit begins
    progress: Progress | None = None
    saves_with_outcome = False
    side_writes: SideWrites | None = None
    pipeline: Pipeline | None = None
    phase_store: PhaseStore | None = None  # a store other than the database, for the tests of projects
    slot_use: SlotUse | None = None  # None: the slot was not handed over since the claim
    slot_lost = False  # no thread replaces the thread that the run occupies
    log: RunLog | None = None  # what the task has logged
    place = ""  # where its thread was when the run was abandoned
    _mask: Mask | None = None

    def __init__(self, job: Claimed, flush: Callable[[Run], None], read_result: Callable[[Run], Any], lane: RunLane | None = None) -> None:
        """Create the run of a claimed job; `flush` requests that its marks are written soon, `lane` has the slot that it occupies."""
        self.job, self.lane, self.flush, self.read_result = job, lane, flush, read_result
        self.lease = _lease((job.id, job.lease_token))
        self.claimed_at = time.monotonic()
        self.lock = threading.RLock()  # as in `Interruption.__init__`, without a call for each job

    def begin(self) -> None:
        """Record that the calling thread enters the task now; raise if the time limit is already over."""
        self.began, inside.run = time.monotonic(), self
        if self.watch is None:
            self.thread_id = threading.get_ident()
            return
        self.watch(self)  # before anything can be thrown: it takes a lock that other threads need
        with self.lock:
            self.thread_id = threading.get_ident()
            over = self.expired
        if over:
            raise exceeded(self.limit)

    def begin_in_loop(self) -> None:
        """Record that the event loop enters the coroutine now."""
        self.began, self.loop_id = time.monotonic(), threading.get_ident()
        if self.watch is not None:
            self.watch(self)

    @property
    def mask(self) -> Mask:
        """The mask that hides the secrets of this job; created for the first text to show, which most runs never have."""
        if self._mask is None:
            self._mask = mask_of_run(self.job, self.entry, self.progress.metadata if self.progress is not None else None)
        return self._mask

    @property
    def slot(self) -> SlotUse:
        """How long the target of the job has used its slot."""
        return self.slot_use or SlotUse(0, self.claimed_at)

    def take_outcome(self) -> Outcome:
        """Return the outcome of the run, and drop the reference to it."""
        outcome, self.outcome = self.outcome, None
        return cast("Outcome", outcome)

    def own_progress(self) -> Progress:
        """Return the progress of the run, which is created when it is first needed."""
        if self.progress is None:
            with self.lock:  # several threads of the task may report
                self.progress = self.progress or Progress()
        return self.progress

    # What the context needs

    def report(self, progress: int, message: str | None, at: int | None = None) -> None:
        """Store the newest progress in memory, to be written soon."""
        with self.shield():
            current = self.own_progress()
            if message is not None:
                message = current.message = shown_message(message, self.mask)
            current.percent = progress if self.pipeline is None else self.pipeline.report(progress, message, at)
            if current.dirty_since is None:
                current.dirty_since = time.monotonic()
                self.flush(self)

    def save(self, metadata: str) -> None:
        """Request that the metadata is written, and wait for it."""
        with self.shield():
            progress = self.own_progress()
            progress.metadata = metadata
            self._mask = None  # a new secret may be in the metadata
            if self.saves_with_outcome:  # no other connection can write while this task's transaction is open
                return
            with progress.saving:  # one thread of the task after the other
                self._save(progress)

    def _save(self, progress: Progress) -> None:
        progress.refused, progress.saved = False, (saved := threading.Event())
        progress.dirty_since = time.monotonic()
        self.flush(self)
        while not saved.wait(0.5):
            if (due := self.due()) is not None:
                raise due
            if self.closed:  # in a thread that the task has left
                raise InvalidArgumentValue("The metadata is not stored: the run has ended.")
        progress.saved = None
        if progress.refused:
            raise InvalidArgumentValue("The metadata cannot be stored: the database refuses it. The worker's log says why.")

    def send(self, work: Callable[[], T]) -> Future[T]:
        """Queue a side write, after the earlier ones; return the future of its result."""
        refuse_in_child()
        with self.lock:
            if self.closed:
                raise JobQueueError(OVER)
            self.side_writes = self.side_writes or SideWrites()
            future = self.side_writes.add(work)
        self.flush(self)
        return future

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
