"""The finisher writes outcomes to the database in batches, and at once when it is idle.

When a job with a target ends, the next job of the target is handed over to this worker in the same transaction. A slot takes at most
`MAX_CHAIN` jobs in a row in this way, for at most `CHAIN_SECONDS` since the first was claimed. Other jobs then get the slot.

If many outcomes wait, a second finisher with a second connection writes successes of jobs without a target at the same time. One
finisher then builds its batch while the server executes the statement of the other one.

If an outcome cannot be written, the finisher retries with back-off, for at most `LEASES` times the length of a lease. The heartbeat
renews the lease meanwhile. Then the finisher drops the outcome, the lease runs out, and the job is recovered. A slot counts as busy
until its outcome is acknowledged or refused.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from jobqueue import signals
from jobqueue.core import repeats, texts
from jobqueue.core.service import ErrorHandler
from jobqueue.core.states import Status
from jobqueue.db import Claimed, LeaseHolder
from jobqueue.lifecycle.finish import finish, written_before
from jobqueue.lifecycle.outcome import HandOver, Kind, Outcome, Settled
from jobqueue.worker.base import DatabaseService
from jobqueue.worker.claim_policy import ClaimPolicy
from jobqueue.worker.reporting import ends, run_logs
from jobqueue.worker.running.run import Run, Runs

BATCH = 1000
BUFFER = 5000
MANY = 200
LEASES = 3
LOCKED_SECONDS = 0.1
SHORT_SECONDS = 0.005
MAX_CHAIN = 20
CHAIN_SECONDS = 1.0

logger = logging.getLogger("jobqueue")
Item = tuple[Run, Outcome]
SUCCESS = Status.SUCCESS.value


class HandOvers(NamedTuple):
    """The policy by which the next job of a target is handed over, and what is called.

    `begin_next` begins a job that was handed over. `result_lost` is called if the result of a commit was lost. `released` is called with a
    tenant if its next job was released, so that any worker may claim it.
    """

    policy: ClaimPolicy
    begin_next: Callable[[Claimed, Run], None]
    result_lost: Callable[[], None]
    released: Callable[[str], None]


class Finisher(DatabaseService):
    """The thread that writes outcomes, and removes their runs from the register of the worker."""

    longest_backoff_seconds = 2.0

    def __init__(
        self,
        runs: Runs,
        worker_id: str,
        lease_seconds: float,
        settled: Callable[[bool], None],
        on_error: ErrorHandler,
        name: str = "finisher",
        second: Finisher | None = None,
        hand_overs: HandOvers | None = None,
    ) -> None:
        """Prepare the thread; `settled` is called after each batch, with whether one of its jobs waits for a retry.

        While `MANY` outcomes wait, `second` gets some successes of jobs without a target. With `hand_overs`, the next job of a target is
        handed over to this worker.
        """
        super().__init__(on_error)
        self.name = name
        self._runs, self._worker_id, self._lease_seconds, self._settled = runs, worker_id, lease_seconds, settled
        self._hand_overs, self._policy = hand_overs, hand_overs and hand_overs.policy
        self._locked_pause = SHORT_SECONDS
        self._buffer: collections.deque[Item] = collections.deque()
        self._room = threading.Event()
        self._second = second
        self._ended = dict.fromkeys((*Status.values, ""), 0)  # all keys from the start, since other threads iterate over it

    def unchain(self) -> None:
        """Hand over no further jobs to this worker."""
        self._policy = None

    def put(self, run: Run, outcome: Outcome) -> None:
        """Queue an outcome; block while `BUFFER` outcomes are unwritten."""
        waiting = len(self._buffer)
        if waiting >= MANY and self._second is not None and self._leaves_to(self._second, outcome):
            self._second.put(run, outcome)
            return
        while waiting >= BUFFER and len(self._buffer) >= BUFFER and not self.stopping:
            self._room.clear()
            self._room.wait(0.5)
        self._buffer.append((run, outcome))
        self.wake()

    def _leaves_to(self, second: Finisher, outcome: Outcome) -> bool:
        return outcome.kind is Kind.SUCCESS and outcome.target is None and len(self._buffer) > len(second._buffer)

    @property
    def unwritten(self) -> int:
        """The number of outcomes that are not written yet."""
        return len(self._buffer) + (self._second.unwritten if self._second else 0)

    @property
    def ended(self) -> dict[str, int]:
        """The number of runs that ended, by the status of the job after it; "" if the lease was lost."""
        of_second = self._second.ended if self._second else {}
        return {status: number + of_second.get(status, 0) for status, number in self._ended.items()}

    @property
    def errors(self) -> int:
        """The number of jobs that have ended in ERROR."""
        return self.ended[Status.ERROR.value]

    @property
    def done(self) -> int:
        """The number of runs whose outcomes were acknowledged or refused."""
        return sum(self.ended.values())

    def turn(self) -> float | None:
        """Write one batch of up to `BATCH` outcomes."""
        batch = [self._buffer.popleft() for _ in range(min(len(self._buffer), BATCH))]
        if not batch:
            return None
        with self._runs.handing_over if self._policy is not None else contextlib.nullcontext():
            settled = self._write(batch)
        if later := {end.outcome.lease for end in settled if end.later}:
            self._buffer.extend(item for item in batch if item[0].lease in later)
            batch = [item for item in batch if item[0].lease not in later]
            settled = [end for end in settled if not end.later]
        self._acknowledge(batch, settled)
        self._room.set()
        if len(self._buffer) > len(later):
            return 0.0
        # The lock of a target is held only briefly, that of a row perhaps for long.
        self._locked_pause = min(2 * self._locked_pause, LOCKED_SECONDS) if later else SHORT_SECONDS
        return self._locked_pause if later else None

    def _write(self, items: Sequence[Item]) -> list[Settled]:
        done = [Settled(outcome, SUCCESS) for _, outcome in items if outcome.committed]
        batch = [item for item in items if not item[1].committed]
        hand_over = None
        try:
            run_logs.write(run for run, _ in items)  # before the outcomes: who sees an end sees what was logged before it
            if not batch:
                return done
            hand_over = self._hand_over(batch)
            if self.failures:
                settled = self._retry(batch, hand_over)
            else:
                settled = finish([outcome for _, outcome in batch], hand_over)
        except BaseException as error:
            self._keep_for_retry(items, error)
            if hand_over is not None and hand_over.leases and self._hand_overs is not None:
                self._hand_overs.result_lost()
            raise
        if self._hand_overs is not None:
            _begin_following(self._hand_overs, batch, settled)
        return [*done, *settled]

    def _hand_over(self, batch: Sequence[Item]) -> HandOver | None:
        policy, now = self._policy, time.monotonic()
        # Only claims count running jobs against `MAX_RUNNING`.
        if policy is None or policy.is_drained or policy.limits.max_running is not None:
            return None
        leases = {run.lease for run, outcome in batch if outcome.target is not None and self._may_chain(run, now)}
        if leases:  # the dispatcher refreshes them, too, but can be idle for too long to notice a pause of a queue in time
            policy.refresh_queues()
        return HandOver(LeaseHolder(self._worker_id, self._lease_seconds), leases, policy.served, policy.no_hand_over_queues)

    def _may_chain(self, run: Run, now: float) -> bool:
        if run.lane is None or not run.lane.pool.size:  # the tenant has lost its lane
            return False
        return run.slot.hand_overs < MAX_CHAIN and now - run.slot.since < CHAIN_SECONDS

    def _retry(self, batch: Sequence[Item], hand_over: HandOver | None) -> list[Settled]:
        # The failed try may have been committed, and only its acknowledgement lost.
        before = written_before([outcome for _, outcome in batch])
        written = finish([outcome for _, outcome in batch if outcome.lease not in before], hand_over)
        return [*written, *(Settled(outcome, before[outcome.lease]) for _, outcome in batch if outcome.lease in before)]

    def _keep_for_retry(self, batch: Sequence[Item], error: BaseException) -> None:
        now = time.monotonic()
        limit = self._lease_seconds * LEASES
        for item in reversed(batch):
            item[0].failed_since = item[0].failed_since or now
            if now - item[0].failed_since <= limit:
                self._buffer.appendleft(item)
            else:
                repeats.log(
                    logging.ERROR, "The outcome of job %s could not be written for %d s and is dropped: %s", item[0].job.id, limit, error
                )
                self._runs.remove([item[0].lease])

    def _acknowledge(self, batch: Sequence[Item], settled: Sequence[Settled]) -> None:
        self._runs.remove([run.lease for run, _ in batch])
        counts = collections.Counter([end.status for end in settled])
        for status, number in counts.items():
            self._ended[status] += number
        if counts.keys() - {SUCCESS}:
            self._settled(Status.PENDING.value in counts)
        else:
            self._settled(False)
            if not signals.has_effect(signals.job_settled) and not signals.has_effect(signals.task_finished):
                return  # saves the loops below for thousands of jobs in a second
        runs = {run.lease: run for run, _ in batch}
        for end in settled:
            if not end.written and end.outcome.kind is not Kind.HANDED_BACK:
                _log_unwritten(runs[end.outcome.lease].job.id, end.refused)
        try:
            ends.announce(type(self), [(runs[end.outcome.lease], end) for end in settled], self._worker_id)
        except BaseException as error:  # noqa: BLE001 - the outcomes are written, and must not be retried
            logger.warning("Signals of %d finished jobs were not sent: %s", len(settled), texts.exception_summary(error))


def _begin_following(hand_overs: HandOvers, batch: Sequence[Item], settled: Sequence[Settled]) -> None:
    """Begin the jobs that were handed over, and report the tenants whose next job any worker may claim."""
    if following := [end for end in settled if end.following is not None]:
        runs = {run.lease: run for run, _ in batch}
        for end in following:
            if end.following is not None:
                hand_overs.begin_next(end.following, runs[end.outcome.lease])
    for tenant in {end.outcome.target.tenant for end in settled if end.releases and end.outcome.target is not None}:
        hand_overs.released(tenant)


def _log_unwritten(job_id: int, refused: str) -> None:
    if refused:
        text = "Job %s stays RUNNING until its lease expires: its row takes neither the outcome of this run nor ERROR: %s"
        repeats.log(logging.ERROR, text, job_id, refused)
    else:
        repeats.log(logging.WARNING, "Job %s: the lease was lost, so the outcome of this run is discarded.", job_id)
