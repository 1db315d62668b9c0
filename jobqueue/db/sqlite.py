"""The differences of SQLite: it has one writer at a time, so a single UPDATE, or BEGIN IMMEDIATE, excludes all other writers.

Times are text with milliseconds, as Django's ``Now()`` writes them; they compare in the order of time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from django.db import transaction

from jobqueue import clock
from jobqueue.db import fence, times
from jobqueue.db.database import Database

FORMAT = "'%%Y-%%m-%%d %%H:%%M:%%f'"


class SQLite(Database):
    """The parts of `Database` that are different on SQLite."""

    vendor = "sqlite"
    is_sqlite = True
    one_writer = True
    now = f"strftime({FORMAT}, 'now')"
    seconds_from_now = f"strftime({FORMAT}, 'now', %s || ' seconds')"
    exact_time = "{0} || ''"  # the text, because the driver would convert it to a time
    at_epoch = "datetime(%s, 'unixepoch')"  # without a fraction: it is not above the same time with one
    # NULL, which the column refuses, if the token cannot rise: SQLite would turn the sum with the largest integer
    # into a float, and the sum with a text into 1.
    next_fence = "CASE WHEN typeof(lease_token) = 'integer' AND lease_token < 9223372036854775807 THEN lease_token + 1 END"
    usable_fence = f"CASE WHEN ({next_fence}) IS NULL THEN random() & 1099511627775 ELSE lease_token END"

    @property
    def file(self) -> Path | None:
        """The file of the database; None for one in memory."""
        name = str(self.connection.settings_dict["NAME"])
        return None if ":memory:" in name or "mode=memory" in name else Path(name)

    @contextlib.contextmanager
    def atomic(self) -> Iterator[None]:
        """Open a short transaction that takes the write lock immediately: a later upgrade fails in spite of the time-out."""
        connection: Any = self.connection
        connection.ensure_connection()  # Django reads the mode from the settings when it connects
        before = connection.transaction_mode
        connection.transaction_mode = "IMMEDIATE"
        try:
            with transaction.atomic(using=self.alias):
                connection.transaction_mode = before
                with fence.passed():
                    yield
        finally:
            connection.transaction_mode = before

    def break_connection(self, connection: Any) -> None:
        """Interrupt a connection and roll back its transaction, which blocks all other writers. Another thread calls this.

        Django then refuses further statements of the thread in that transaction, and the thread finds it rolled back
        at its end.
        """
        raw = connection.connection
        with contextlib.suppress(Exception):  # its thread may have closed it meanwhile
            raw.interrupt()
            if raw.in_transaction:
                connection.needs_rollback = connection.in_atomic_block
                raw.rollback()
                connection.needs_rollback = connection.in_atomic_block  # repeated, because its thread may just have left a savepoint

    def moment_text(self, at: Any) -> str | None:
        """Return a time as Django stores it."""
        return self.adapt(at) if at else None

    def adapt(self, value: Any) -> Any:
        """Return times as the text that Django stores, deltas as seconds."""
        if isinstance(value, timedelta):
            return value.total_seconds()
        if isinstance(value, datetime):
            return clock.aware(value).astimezone(UTC).replace(tzinfo=None).isoformat(" ")
        return value

    def moment(self, value: Any) -> Any:
        """Return a stored time as an aware datetime; a time that cannot be read becomes the latest one."""
        if isinstance(value, str):
            try:
                value = datetime.fromisoformat(value)
            except ValueError:
                value = datetime.fromisoformat(times.LAST)
        # The driver may have converted it already, without a time zone.
        return value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value
