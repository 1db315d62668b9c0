"""Maintenance that each worker process does: its row on the Workers page, and the jobs of dead workers on the same database file.

Cluster-wide maintenance is in `jobqueue.duties`. A free file lock proves that a worker on the same file is dead, so no leader is needed.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence

from jobqueue.core import repeats, states
from jobqueue.core.service import ErrorHandler
from jobqueue.db import hygiene
from jobqueue.lifecycle.expire import Expired, expire_owner
from jobqueue.lifecycle.workers import record_left
from jobqueue.models import BackgroundJobLease, LeftWorker
from jobqueue.worker.base import DatabaseService, is_outage
from jobqueue.worker.process.identity import Identity
from jobqueue.worker.reporting import ends

PAUSE_SECONDS = 1.0
WORKER_ROW_SECONDS = 10.0
AGAIN_SECONDS = 30.0
# The database may still execute statements of a dead worker after its death was noticed, so its jobs are recovered for this long.
LATE_SECONDS = 5.0

logger = logging.getLogger("jobqueue")


class Maintenance(DatabaseService):
    """The thread that updates the row of its worker, recovers jobs of dead workers, and announces lost jobs."""

    name = "maintenance"
    longest_backoff_seconds = 2.0

    def __init__(
        self,
        identity: Identity,
        *,
        show: Callable[[], None],
        stuck: Callable[[], int],
        found: Callable[[], None],
        changed: Callable[[], object] = lambda: None,
        at_start: Callable[[], int] = lambda: 0,
        recovered: Callable[[Sequence[str]], None] = lambda owners: None,
        on_error: ErrorHandler,
    ) -> None:
        """Prepare the thread.

        `show` writes the row of the process. It is called at once when the return value of `stuck` or of `changed` differs from the
        last one. `found` is called when jobs were recovered. `at_start` is called until it returns 0: nothing is left to do.
        `recovered` is called with the identities of dead workers whose jobs were recovered.
        """
        super().__init__(on_error)
        self._identity, self._show, self.stuck, self._found = identity, show, stuck, found
        self._changed, self._at_start, self._recovered = changed, at_start, recovered
        self._start_at: float | None = 0.0
        self._shown_at: float | None = None
        self._seen: object = (0, None)
        self._dead: dict[str, float | None] = {}
        self._culprits: dict[str, int | None] = {}
        self.errors = 0  # jobs that were found lost and ended in ERROR

    def recover(self, owners: Mapping[str, int | None]) -> None:
        """Recover the jobs of dead workers in the next turn. Call it from any thread.

        Each identity maps to the overdue job for which the worker was killed, or to None.
        """
        self._culprits |= owners
        self._dead |= dict.fromkeys(owners)
        self.wake()

    def show_now(self) -> None:
        """Write the row in the next turn, and read there whether the worker is to be drained. Call it from any thread."""
        self._shown_at = None
        self.wake()

    def turn(self) -> float | None:
        """Update the row if it is due and recover jobs of dead workers; return the seconds to the next turn."""
        now = time.monotonic()
        seen = (self.stuck(), self._changed())
        if self._shown_at is None or now - self._shown_at >= WORKER_ROW_SECONDS or seen != self._seen:
            self._show()
            self._shown_at, self._seen = now, seen
        if self._start_at is not None and now >= self._start_at:
            self._start_at = now + AGAIN_SECONDS if self._start() else None
        lost: list[Expired] = []
        dead = list(self._dead)
        for owner in [*self._identity.dead_neighbours(), *dead]:
            BackgroundJobLease.objects.release_all_of(owner)
            lost += expire_owner(owner, self._culprits.get(owner))
        self._bury(dead)
        repeats.flush()
        if lost:
            self.announce(lost)
            self._found()
        return PAUSE_SECONDS * random.uniform(0.8, 1.0)  # noqa: S311 - workers must not query at the same moment

    def _bury(self, dead: Sequence[str]) -> None:
        now = time.monotonic()
        fresh = [owner for owner in dead if self._dead[owner] is None]
        if fresh:
            self._dead |= dict.fromkeys(fresh, now)
            record_left(fresh, LeftWorker.How.KILLED)
            self._recovered(fresh)
        for owner in dead:
            if now - (self._dead[owner] or now) > LATE_SECONDS:
                del self._dead[owner]
                self._culprits.pop(owner, None)

    def _start(self) -> int:
        # In this thread: a statement that waits for the lock of another session delays no renewal of a leadership here.
        try:
            return self._at_start()
        except BaseException as error:  # a module of the project may raise SystemExit and the like
            if is_outage(error):
                raise
            logger.exception("A startup step of the worker failed; the next try is in %g s.", AGAIN_SECONDS)
            return 1

    def announce(self, lost: Sequence[Expired]) -> None:
        """Send the signals of jobs that were lost with their workers, and count those that ended in ERROR. Call it from any thread."""
        ends.announce_lost(type(self), lost, self._identity.worker_id)
        self.errors += sum(job.status == states.Status.ERROR for job in lost)


def recover_dead(owners: Mapping[str, int | None]) -> None:
    """Recover the jobs of dead workers when no live worker can do it, and close the connection."""
    try:
        for owner, culprit in owners.items():
            BackgroundJobLease.objects.release_all_of(owner)
            expire_owner(owner, culprit)
        record_left(list(owners), LeftWorker.How.KILLED)
    except Exception as error:  # noqa: BLE001 - the leases run out in any case
        logger.warning("The jobs of %d workers that died could not be recovered at once: %s", len(owners), error)
    finally:
        hygiene.close_all()
