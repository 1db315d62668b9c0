"""What the database services of a worker share: a reserved connection, dropped after an error of the connection."""

from __future__ import annotations

from jobqueue import conf, db
from jobqueue.core.service import ErrorHandler, Service
from jobqueue.db import hygiene
from jobqueue.models import Job


class DatabaseService(Service):
    """Be a service with a connection of its own, so that tasks can never starve it of one."""

    def __init__(self, on_error: ErrorHandler | None = None) -> None:
        """Prepare the thread."""
        super().__init__(self._after_error)
        self._report = on_error
        self._connection: object | None = None

    def set_up(self) -> None:
        """Reserve the connection; it may keep plans where it may listen, if no pooler gives each transaction another session."""
        self._connection = Job.objects.database.reserve_connection(self.name, keep_plans=conf.current().notify)

    def abort(self) -> None:
        """Let the statement that the thread hangs in fail; called by another thread."""
        if self._connection is not None:
            Job.objects.database.break_connection(self._connection)

    def tear_down(self) -> None:
        """Close the connection."""
        hygiene.close_all()

    def _after_error(self, service: Service, error: BaseException, failures: int) -> None:
        # Whatever it was, a new connection cannot be worse than one in an unknown state.
        hygiene.close_broken(Job.objects.database.alias)
        if self._report is not None:
            self._report(service, error, failures)


def is_outage(error: BaseException) -> bool:
    """Return whether an error means that the database cannot be reached just now."""
    return db.is_connection_error(error)
