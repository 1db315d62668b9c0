"""The check for a pooler, such as PgBouncer, that gives each transaction of a connection another session.

State that LISTEN, a prepared statement or a SET without LOCAL leaves in a session is then lost, or visible to another
client. Such a pooler reports an invented process id to its clients, because they have no server process of their own;
the server reports the true one. The check runs once for each connection of the driver, because a failover may lead
through a pooler or past it.
"""

from __future__ import annotations

from typing import Any

ATTRIBUTE = "_jobqueue_behind_pooler"


def is_behind_pooler(connection: Any) -> bool:
    """Return whether there is a pooler. One that keeps a session for each client cannot be distinguished, and counts, too."""
    connection.ensure_connection()
    raw = connection.connection
    found: bool | None = getattr(raw, ATTRIBUTE, None)
    if found is None:
        # Bypass Django's cursor, so that query logs and wrappers do not count this statement.
        with connection.wrap_database_errors:
            [told] = raw.execute("SELECT pg_backend_pid()").fetchone()
        found = told != raw.info.backend_pid
        setattr(raw, ATTRIBUTE, found)
    return found
