"""The base class of the services of a worker that use the database: each has a dedicated connection, replaced after each error."""

from __future__ import annotations

from jobqueue import conf, db
from jobqueue.core.service import ErrorHandler, Named, Service
from jobqueue.db import hygiene, statement_counts
from jobqueue.models import Job


class DatabaseService(Service):
    """A service with a dedicated connection, so that tasks cannot use up the connections that it needs."""

    def __init__(self, on_error: ErrorHandler | None = None) -> None:
        """Prepare the thread; `on_error` is called after each failed turn."""
        super().__init__(self._after_error)
        self._report = on_error
        self._connection: object | None = None

    def set_up(self) -> None:
        """Reserve the connection; it keeps the plans of statements if `NOTIFY` is on and no pooler changes the session per transaction."""
        self._connection = Job.objects.database.reserve_connection(self.name, keep_plans=conf.current().notify)
        statement_counts.count(self._connection)

    @property
    def statements(self) -> int:
        """The number of statements that the service has sent."""
        return statement_counts.counted(self._connection)

    def abort(self) -> None:
        """Make the statement fail that the thread waits for. Another thread calls this."""
        if self._connection is not None:
            Job.objects.database.break_connection(self._connection)

    def tear_down(self) -> None:
        """Close the connection."""
        hygiene.close_all()

    def _after_error(self, service: Named, error: BaseException, failures: int) -> None:
        # For every kind of error: a new connection is safer than one in an unknown state.
        hygiene.close_broken(Job.objects.database.alias)
        if self._report is not None:
            self._report(service, error, failures)


def is_outage(error: BaseException) -> bool:
    """Return whether an error means that the database cannot be reached now."""
    return db.is_connection_error(error)
