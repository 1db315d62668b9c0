"""Tell whether a pooler stands between a connection and the server that gives each transaction another session, as PgBouncer does.

What LISTEN, a prepared statement or a SET without LOCAL leave in a session is then not there later, or is there for somebody else. Such a
pooler makes up the process id that it tells its clients, who have no process of their own; the server tells the true one. It is asked once
for each connection of the driver, since a failover may lead through a pooler or past it.
"""

from __future__ import annotations

from typing import Any

ANSWER = "_jobqueue_behind_pooler"


def stands_between(connection: Any) -> bool:
    """Return whether there is one; one that keeps a session for each client looks the same, and counts as one, too."""
    connection.ensure_connection()
    raw = connection.connection
    found: bool | None = getattr(raw, ANSWER, None)
    if found is None:
        # Past Django's cursor, so that this counts as nobody's statement.
        with connection.wrap_database_errors:
            [told] = raw.execute("SELECT pg_backend_pid()").fetchone()
        found = told != raw.info.backend_pid
        setattr(raw, ANSWER, found)
    return found
