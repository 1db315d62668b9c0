"""The chores that every worker does for all, in batches that skip locked rows.

Each second due jobs are promoted and lost ones recovered; every 5 s the lines of targets are repaired.
After an outage the sweep waits until the heartbeats had time to renew: the leases ran out while nobody could reach the database,
and that is nobody's crash.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Sequence

from jobqueue import signals, states
from jobqueue.lifecycle.expire import Expired, expire_owner, expire_stale_running_jobs
from jobqueue.lifecycle.promote import promote_due_jobs
from jobqueue.lifecycle.release import release_parked_targets
from jobqueue.models import Job
from jobqueue.service import ErrorHandler, Service
from jobqueue.worker.base import DatabaseService, is_outage
from jobqueue.worker.identity import Identity
from jobqueue.worker.tenancy import telling

PAUSE_SECONDS = 1.0
BATCH = 500
WORKER_ROW_SECONDS = 10.0
REPAIR_SECONDS = 5.0
REPAIR_BATCH = 20_000

logger = logging.getLogger("jobqueue")


class Maintenance(DatabaseService):
    """Promote, expire, and keep this process's row for people up to date."""

    name = "maintenance"
    longest_backoff_seconds = 2.0

    def __init__(
        self,
        identity: Identity,
        *,
        heartbeat_seconds: float,
        keep: Callable[[], None],
        show: Callable[[], None],
        stuck: Callable[[], int],
        promoted: Callable[[], None],
        changed: Callable[[], object] = lambda: None,
        on_error: ErrorHandler,
    ) -> None:
        """Prepare the thread.

        `keep` renews our own leases, `show` writes the process's row, at once when `stuck` tells another number or `changed` another
        thing, and `promoted` is told of new work.
        """
        super().__init__(on_error)
        self._identity, self._keep, self._show, self.stuck, self._promoted = identity, keep, show, stuck, promoted
        self._changed = changed
        self._heartbeat_seconds = heartbeat_seconds
        self._no_sweep_before = 0.0
        self._shown_at: float | None = None
        self._seen: object = (0, None)
        self.errors = 0  # jobs that the sweep ended in ERROR
        self._turned_at = self._repaired_at = time.monotonic()

    def turn(self) -> float | None:
        """Do each chore that is due; return the seconds to the next."""
        now = time.monotonic()
        if now - self._turned_at > PAUSE_SECONDS + self._heartbeat_seconds:
            # The process stood still, and its heartbeat with it: leases that nobody has taken meanwhile can still be renewed.
            self._no_sweep_before = now + 2 * self._heartbeat_seconds
        self._turned_at = now
        seen = (self.stuck(), self._changed())
        if self._shown_at is None or now - self._shown_at >= WORKER_ROW_SECONDS or seen != self._seen:
            self._show()
            self._shown_at, self._seen = now, seen
        due_in = Job.objects.next_due_seconds()
        if due_in is not None and due_in <= 0:
            moved = promote_due_jobs(BATCH)
            if moved:
                self._promoted()
            if moved == BATCH:
                return 0.0
            due_in = None
        if now >= self._no_sweep_before:
            self._sweep()
        if now - self._repaired_at >= REPAIR_SECONDS:
            self._repaired_at = now
            release_parked_targets(REPAIR_BATCH)
        pause = PAUSE_SECONDS * random.uniform(0.8, 1.0)  # noqa: S311 - workers must not sweep in step
        return pause if due_in is None or due_in > pause else due_in

    def _sweep(self) -> None:
        lost: list[Expired] = []
        if Job.objects.current.expired().exists():
            self._keep()
            lost += expire_stale_running_jobs()
        for owner in self._identity.dead_neighbours():
            lost += expire_owner(owner)
        if lost:
            self.announce(lost)
            self._promoted()

    def announce(self, lost: Sequence[Expired]) -> None:
        """Tell of jobs that were found lost; from any thread."""
        for one in lost:
            try:
                with telling(one.tenant, signals.job_lost):
                    signals.job_lost.send_robust(
                        type(self),
                        job_id=one.job_id,
                        task=one.task,
                        status=one.status,
                        worker_id=one.owner,
                        found_by=self._identity.worker_id,
                    )
            except Exception as error:  # noqa: BLE001 - the jobs are recovered; telling of one must not keep the rest from being told
                logger.warning("Job %s: the loss of its worker was not told to those who listen: %s", one.job_id, error)
        self.errors += sum(one.status == states.Status.ERROR for one in lost)

    def _after_error(self, service: Service, error: BaseException, failures: int) -> None:
        if is_outage(error):
            self._no_sweep_before = time.monotonic() + 2 * self._heartbeat_seconds
        super()._after_error(service, error, failures)
