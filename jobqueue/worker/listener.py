"""The listener hears notifications, where the database has them: new work, and requests to stop."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jobqueue.lifecycle.wakeup import CHANNEL
from jobqueue.models import Job
from jobqueue.service import ErrorHandler
from jobqueue.worker.base import DatabaseService

ROUND_SECONDS = 1.0
PROBE_ROUNDS = 20


class Listener(DatabaseService):
    """Call `work` when one of `queues` has new work, `stop_asked` when one of our jobs is to stop."""

    name = "listener"

    def __init__(
        self, worker_id: str, queues: Sequence[str], work: Callable[[], None], stop_asked: Callable[[], None], on_error: ErrorHandler
    ) -> None:
        """Prepare the thread."""
        super().__init__(on_error)
        self._worker_id, self._queues = worker_id, frozenset(queues)
        self._work, self._stop_asked = work, stop_asked
        self._listening = False
        self._rounds = 0

    @property
    def healthy(self) -> bool:
        """Whether notifications arrive, as far as we know."""
        return self._listening and self.failures == 0

    def turn(self) -> float | None:
        """Hear for a while; now and then ask the server whether it is still there."""
        database = Job.objects.database
        if not self._listening or self._rounds >= PROBE_ROUNDS:
            database.listen(CHANNEL)  # repeated, it is a harmless probe of the connection
            if not self._listening:
                self._listening = True
                self._work()  # what was told while nobody listened
            self._rounds = 0
        self._rounds += 1
        for payload in database.heard(ROUND_SECONDS):
            kind, _, name = payload.partition(":")
            if kind == "queue" and (not self._queues or name in self._queues):
                self._work()
            elif kind == "owner" and name == self._worker_id:
                self._stop_asked()
        return 0.0

    def _after_error(self, service: object, error: BaseException, failures: int) -> None:
        self._listening = False
        super()._after_error(self, error, failures)
