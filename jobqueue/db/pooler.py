"""The check for a pooler, such as PgBouncer, that gives each transaction of a connection another session.

State that LISTEN, a prepared statement or a SET without LOCAL leaves in a session is then lost, or visible to
another client. Such a pooler sends its clients an invented process id, because no server process belongs to one
client alone. The server itself reports the true id. The check runs once for each connection of the driver,
because the route can change with a failover: it may then lead through a pooler or not.
"""

from __future__ import annotations

from typing import Any

ATTRIBUTE = "_jobqueue_behind_pooler"


def is_behind_pooler(connection: Any) -> bool:
    """Return whether there is a pooler.

    A pooler that keeps one session for each client also counts, because it cannot be distinguished.
    """
    connection.ensure_connection()
    raw = connection.connection
    is_pooled: bool | None = getattr(raw, ATTRIBUTE, None)
    if is_pooled is None:
        # Bypass Django's cursor, so that query logs and wrappers do not count this statement.
        with connection.wrap_database_errors:
            [backend_pid] = raw.execute("SELECT pg_backend_pid()").fetchone()
        is_pooled = backend_pid != raw.info.backend_pid
        setattr(raw, ATTRIBUTE, is_pooled)
    return is_pooled
