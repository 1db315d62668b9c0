"""The listener receives notifications, if the database has them: new work, and requests to stop.

Behind a pooler that gives each transaction another session, no notification would arrive, and another client would get those of this
worker. The listener then only checks now and then whether the pooler is still there, and holds no connection; the other services poll.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from jobqueue.core import queue_rules
from jobqueue.core.service import ErrorHandler
from jobqueue.db import hygiene
from jobqueue.lifecycle.wakeup import CHANNEL, DUE, DUTIES, OWNER, QUEUES, WORKERS, read_work
from jobqueue.models import Job
from jobqueue.worker.base import DatabaseService
from jobqueue.worker.wakeups import Signal, Wakeups

ROUND_SECONDS = 1.0
PROBE_ROUNDS = 20
POOLER_SECONDS = 60.0
OFF = (
    "LISTEN is off: this worker uses its database through a pooler. It polls (POLL_SECONDS), keeps no prepared plans, and "
    "reads requests to stop with its heartbeats."
)

logger = logging.getLogger("jobqueue")


class Listener(DatabaseService):
    """A service that passes on the notifications that concern this process."""

    name = "listener"

    def __init__(self, worker_id: str, queues: Sequence[str], wakeups: Wakeups, on_error: ErrorHandler) -> None:
        """Prepare the thread."""
        super().__init__(on_error)
        self._worker_id, self._served = worker_id, queue_rules.parse(tuple(queues))
        self._wakeups = wakeups
        self._listening = self._behind_pooler = False
        self._rounds = 0

    @property
    def healthy(self) -> bool:
        """Whether notifications arrive, as far as this process knows."""
        return self._listening and self.failures == 0

    def turn(self) -> float | None:
        """Wait for notifications for a while; now and then check the connection to the server."""
        database = Job.objects.database
        if not self._listening and database.behind_pooler:
            return self._do_without()
        if not self._listening or self._rounds >= PROBE_ROUNDS:
            database.listen(CHANNEL)  # repeated, it is a harmless probe of the connection
            if not self._listening:
                self._listening = True
                if self._behind_pooler:
                    self._behind_pooler = False
                    logger.info("LISTEN is on: this worker no longer uses its database through a pooler.")
                self._wakeups.set(Signal.WORK, None)  # for notifications that were missed while the listener was off
            self._rounds = 0
        self._rounds += 1
        for payload in database.wait_for_notifications(ROUND_SECONDS):
            self._pass_on(payload)
        return 0.0

    def _do_without(self) -> float:
        if not self._behind_pooler:
            self._behind_pooler = True
            logger.info(OFF)
        hygiene.close_all()
        return POOLER_SECONDS

    def _pass_on(self, payload: str) -> None:
        if payload == OWNER.format(self._worker_id):
            self._wakeups.set(Signal.STOP_REQUESTED)
        elif payload == QUEUES:
            self._wakeups.set(Signal.QUEUES)
            self._wakeups.set(Signal.WORK, None)
        elif payload == DUE:
            self._wakeups.set(Signal.DUE)
        elif payload == DUTIES:
            self._wakeups.set(Signal.DUTIES)
        elif payload == WORKERS:
            self._wakeups.set(Signal.WORKERS)
        elif (work := read_work(payload)) is not None and self._served.matches(work[1]):
            self._wakeups.set(Signal.WORK, work[0])

    def _after_error(self, service: object, error: BaseException, failures: int) -> None:
        self._listening = False
        super()._after_error(self, error, failures)
