"""The dispatcher fills the free slots of each lane: it claims jobs, passes them on, and sleeps until it is woken or a poll is due.

It claims at most as many jobs as there are free slots, plus those that the pool will finish within the next 0.1 s at its measured rate.
So it never hoards long jobs, and claims very short jobs by the hundred. Claimed jobs that have not begun after 1 s are handed back. A job
whose worker was lost starts its next run under probation (see ``worker/running/probation.py``).
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Sequence

from jobqueue import db
from jobqueue.core import time_limits
from jobqueue.core.service import ErrorHandler
from jobqueue.core.targets import Target
from jobqueue.core.texts import safe_repr
from jobqueue.db import Claimed, Lease, Mark, leases
from jobqueue.declared import registry
from jobqueue.lifecycle import wakeup
from jobqueue.lifecycle.aside import reason_of
from jobqueue.lifecycle.expire import Expired
from jobqueue.lifecycle.finish import finish
from jobqueue.lifecycle.outcome import Kind, Outcome
from jobqueue.models import Job
from jobqueue.worker.base import DatabaseService
from jobqueue.worker.claiming.claimer import HEAD_SECONDS, Claimer
from jobqueue.worker.reporting.finisher import Finisher
from jobqueue.worker.reporting.reporter import Reporter
from jobqueue.worker.running import slots
from jobqueue.worker.running.executor import read_result
from jobqueue.worker.running.judging import failed, handed_back
from jobqueue.worker.running.lanes import Lane, Lanes
from jobqueue.worker.running.loop import Loop
from jobqueue.worker.running.probation import PUT_OFF, PUT_OFF_SECONDS, Probation
from jobqueue.worker.running.run import Run, Runs, SlotUse

HAND_BACK_SECONDS = 1.0
FAST_SECONDS = 0.005
# With a listener, a notification reports the next job, unless the job was enqueued while its notification was held back.
NOTIFIED_FAST_SECONDS = 1.2 * wakeup.PAUSE_SECONDS
QUIET_SECONDS = 2.0
MAX_POLL_SECONDS = 5.0
SUSPECTS_SECONDS = 0.05


class Dispatcher(DatabaseService):
    """A service that claims jobs for one process and passes them to the pools or the event loop."""

    name = "dispatcher"

    def __init__(
        self,
        worker_id: str,
        claimer: Claimer,
        *,
        runs: Runs,
        lanes: Lanes,
        loop: Loop,
        finisher: Finisher,
        reporter: Reporter,
        poll_seconds: float,
        is_notified: Callable[[], bool],
        lost: Callable[[Sequence[Expired]], None],
        crowded: Callable[[], None],
        max_crashes: int,
        watch: Callable[[Run], None],
        on_error: ErrorHandler,
    ) -> None:
        """Prepare the thread; `crowded` is called when there may be more jobs to run than the shared lane has slots.

        `watch` is called when a run that has a time limit begins.
        """
        super().__init__(on_error)
        self._worker_id, self._claimer, self._runs, self._lanes = worker_id, claimer, runs, lanes
        self._loop, self._finisher, self._reporter = loop, finisher, reporter
        self._poll_seconds, self._is_notified, self._lost = poll_seconds, is_notified, lost
        self._crowded, self._watch = crowded, watch
        self._suspects: deque[Run] = deque()  # for the probation, which only this thread uses; the finisher adds some, too
        self._probation = Probation(runs, max_crashes)
        self._worked_at = time.monotonic()
        self._pause = self._busy_pause = FAST_SECONDS
        self._checked_at = 0.0
        self._lost_track = False
        self.claimed = 0
        self.taken_over = 0  # separate, since the finisher counts it

    def turn(self) -> float | None:
        """Claim once for each lane, and begin suspects; return the seconds to the next turn."""
        if self.failures or self._lost_track:
            self._lost_track = False
            self._give_back_unknown()
        now = time.monotonic()
        if now - self._checked_at >= HAND_BACK_SECONDS / 2:
            self._checked_at = now
            self.give_back(self.take_waiting(now - HAND_BACK_SECONDS))
        self._claimer.find_tenants()
        pause = min([self._fill(lane) for lane in self._lanes])
        if self._claimer.find_more_tenants():
            pause = 0.0
        if self._claimer.is_halfway and any(lane.free > 0 for lane in self._lanes):
            pause = min(pause, HEAD_SECONDS)
        self._admit_suspects()
        if self._probation.waiting:
            self._begin_suspect()
            pause = min(pause, SUSPECTS_SECONDS)
        return pause

    @property
    def wants_slots(self) -> bool:
        """Whether the end of a run can let another job begin."""
        return bool(self._probation.waiting) or any(lane.saturated for lane in self._lanes)

    def run_ended(self) -> None:
        """Claim for the slots that the ends of runs have freed, unless the last claim found fewer jobs than free slots."""
        if self.wants_slots:
            self.wake()

    def _fill(self, lane: Lane) -> float:
        lane.saturated = True  # before the slots are counted: a slot that becomes free from now on wakes this thread
        wanted = lane.wanted()
        if wanted <= 0:
            self._report_full(lane)
            return self._poll_seconds
        pick = self._claimer.pick(lane, wanted)
        lane.saturated, lane.last_claim = pick.more or pick.limited, len(pick.jobs)
        if pick.lost:
            self._lost(pick.lost)
        if pick.jobs:
            self._hand_over(lane, pick.jobs)
        if pick.more:
            self._report_full(lane)
        if pick.moved:
            self._worked_at, self._pause, self._busy_pause = time.monotonic(), self._fast_pause(), FAST_SECONDS
            return 0.0 if pick.more and lane.wanted() > 0 else self._pause
        if pick.more:  # the scan was cut short, so that other tenants and lanes are served
            return 0.0 if pick.must_continue else FAST_SECONDS
        if pick.busy:  # a target's lock is usually held for a moment, but may be held for long
            pause, self._busy_pause = self._busy_pause, 2 * self._busy_pause
            self._busy_pause = min(self._busy_pause, self._poll_seconds)
            return min(pause, self._idle_pause())
        return min(self._idle_pause(), self._poll_seconds) if pick.limited else self._idle_pause()

    def _report_full(self, lane: Lane) -> None:
        if lane is self._lanes.shared and lane.free <= 0:
            self._crowded()

    # Pass on to the threads that run them

    def _hand_over(self, lane: Lane, jobs: Sequence[Claimed]) -> None:
        runs = [self._run(job, lane) for job in jobs]
        self.claimed += len(runs)
        self._runs.add(runs)
        suspects = [run for run in runs if run.job.crashes and run.unreadable is None]
        if suspects:
            self._suspects.extend(suspects)
            runs = [run for run in runs if not run.job.crashes or run.unreadable is not None]
        self._begin(runs)

    def _run(self, job: Claimed, lane: slots.RunLane | None) -> Run:
        run = Run(job, self._reporter.flush, read_result, lane)
        try:
            self._read(run, job)
        except Exception as error:  # noqa: BLE001 - the other jobs of the batch are claimed, too, and must begin
            run.unreadable = error
        return run

    def _read(self, run: Run, job: Claimed) -> None:
        """Read from the row how to run the job."""
        if job.options != time_limits.NO_OPTIONS and (limit := time_limits.of_text(job.options)) is not None:
            run.limit, run.watch = limit, self._watch
        if job.crashes and not isinstance(job.crashes, int):  # SQLite can hold a text in a column of numbers
            raise TypeError(f"The job's row holds {safe_repr(job.crashes)} as crashes; it must be a whole number.")
        run.entry = registry.find(job.task)

    def begin_next(self, job: Claimed, before: Run) -> None:
        """Begin a job whose target was handed over by a run that has just ended; called by the finisher."""
        run = self._run(job, before.lane)
        run.slot_use = SlotUse(before.slot.hand_overs + 1, before.slot.since)
        self.taken_over += 1
        self._runs.add([run])
        if job.crashes and run.unreadable is None:
            self._suspects.append(run)
            self.wake()
        else:
            self._begin([run])

    def _begin(self, runs: Sequence[Run]) -> None:
        functions: dict[slots.SlotPool, list[Run]] = {}
        for run in runs:
            if run.entry is not None and run.entry.is_async:
                self._loop.submit(run)
            else:
                functions.setdefault((run.lane or self._lanes.shared).pool, []).append(run)
        for pool, of_pool in functions.items():
            pool.submit(of_pool)
        self._reporter.wake()

    def _admit_suspects(self) -> None:
        while self._suspects:
            self._probation.add([self._suspects.popleft()])

    def _begin_suspect(self) -> None:
        now = time.monotonic()
        for run in self._probation.take_blocked(now):
            self._end(run, PUT_OFF_SECONDS, PUT_OFF)
        if (suspect := self._probation.next(now)) is None:
            return
        try:
            written = leases.mark(Job.objects.database, [Mark(*suspect.lease, 0.0, None, None, None)])
        except Exception as error:
            if not db.is_refusal(error):
                raise
            self._probation.remove(suspect)
            suspect.ended = time.monotonic()
            self._finisher.put(suspect, failed(suspect, Kind.ERROR, ValueError(f"Its start cannot be written: {reason_of(error)}")))
        else:
            if written:  # else the row is locked
                self._probation.begin(suspect)
                self._begin([suspect])

    # Hand back

    def take_waiting(self, claimed_before: float) -> list[Run]:
        """Remove and return the jobs that were claimed before a time and have not begun."""
        self._admit_suspects()
        lanes, loop = self._lanes.take_waiting(claimed_before), self._loop.take_waiting(claimed_before)
        return [*lanes, *loop, *self._probation.take_waiting(claimed_before)]

    def give_back(self, runs: Sequence[Run]) -> None:
        """Hand back claimed jobs that have not begun."""
        for run in runs:
            self._end(run)

    def _end(self, run: Run, delay_seconds: float = 0.0, message: str | None = None) -> None:
        run.ended = time.monotonic()
        outcome = handed_back(run)
        outcome.delay_seconds, outcome.message = delay_seconds, message
        self._finisher.put(run, outcome)

    def lose_track(self) -> None:
        """Request a search, at the next turn, for jobs that this worker owns but does not know."""
        self._lost_track = True

    def _give_back_unknown(self) -> None:
        """Hand back jobs that this worker owns but does not know: their claim or hand-over was committed, and the response was lost."""
        with self._runs.handing_over:  # jobs that the finisher is taking over are registered before it releases this lock
            owned = list(Job.objects.current.owned_by(self._worker_id).values_list("pk", "lease_token", "tenant", "target"))
            known = {run.lease for run in self._runs}
        unknown = [Outcome(Lease(*row[:2]), Kind.HANDED_BACK, target=Target(*row[2:]) if row[3] else None) for row in owned]
        finish([outcome for outcome in unknown if outcome.lease not in known])

    # Rest

    @property
    def _is_quiet(self) -> bool:
        return time.monotonic() - self._worked_at > QUIET_SECONDS and self._is_notified()

    def _idle_pause(self) -> float:
        longest = MAX_POLL_SECONDS if self._is_quiet else self._poll_seconds
        pause = min(self._pause, longest)
        self._pause = min(self._pause * 2, MAX_POLL_SECONDS)
        return pause * random.uniform(0.8, 1.0)  # noqa: S311 - the workers of a fleet must not poll in step; POLL_SECONDS is the maximum

    def _fast_pause(self) -> float:
        return NOTIFIED_FAST_SECONDS if self._is_notified() else FAST_SECONDS

    def notified(self, tenant: str | None = None) -> None:
        """Wake up immediately and poll quickly for a while; give `tenant`, if it is known, an early turn."""
        if tenant is not None:
            self._claimer.notify(tenant)
        self._pause = self._fast_pause()
        self.wake()
