"""A plan that the server keeps on a connection of the user's project, for the statement that makes jobs.

Planning takes a third of the server's time for a job. PREPARE and EXECUTE are sent as text: a statement that
the driver prepares must be sent as a separate message, which costs the client more than planning costs the
server. A session that has lost the plan (DISCARD, or an unnoticed pooler), or whose table has changed, reports an
error before the statement has any effect. The statement is then sent in full, and no plan is kept on that
connection any more.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from psycopg import Error
from psycopg.pq import Escaping

from jobqueue import conf
from jobqueue.db import pooler

# The number of times that a statement is sent before its plan is kept: most connections of a web server make few
# jobs before they are closed.
PREPARED_AFTER = 5
MOST = 20
KNOWN = "_jobqueue_prepared"


def execution(connection: Any, sql: str, params: Sequence[Any]) -> bytes | None:
    """Return the text that runs a statement by its kept plan, or None if it has none. No transaction may be open.

    Statements are counted by their texts, on each connection of the driver.
    """
    raw = connection.connection
    known: dict[str, int | bytes] | None = getattr(raw, KNOWN, {})
    if known is None or not conf.current().notify:  # off if there is a pooler that cannot be detected
        return None
    setattr(raw, KNOWN, known)
    entry = known.get(sql, 0)
    if isinstance(entry, bytes):
        return _called(raw, entry, params)
    if entry >= PREPARED_AFTER:
        if (name := _prepare(connection, sql, len(params))) is None:
            give_up(raw)
            return None
        known[sql] = name
    elif entry or len(known) < MOST:
        known[sql] = entry + 1
    return None


def give_up(raw: Any) -> None:
    """Keep no more plans on this connection of the driver."""
    setattr(raw, KNOWN, None)


def literal(raw: Any, text: str) -> bytes:
    """Return a text without a NUL as an SQL literal."""
    return _literals(raw)(text)


def _literals(raw: Any) -> Callable[[str], bytes]:
    escape, encoding = Escaping(raw.pgconn).escape_literal, raw.info.encoding
    return lambda text: bytes(escape(text.encode(encoding)))


def _prepare(connection: Any, sql: str, number: int) -> bytes | None:
    """Make the server keep the plan of a statement and return its name, or None if that is not possible."""
    parts = sql.split("%s")
    if len(parts) != number + 1 or any("%" in part for part in parts) or pooler.is_behind_pooler(connection):
        return None
    text = "".join(itertools.chain.from_iterable(zip(parts, [*(f"${place + 1}" for place in range(number)), ""], strict=True)))
    # The name comes from the text, so a name never means another statement, whatever session a pooler leads to.
    name = f"jobqueue_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    try:
        # Bypass Django's cursor, so that query logs and wrappers do not count this statement.
        connection.connection.execute(f"PREPARE {name} AS {text}")
    except Error:
        return None  # the statement itself reports the error, if the plan is not the cause
    return name.encode()


def _called(raw: Any, name: bytes, params: Sequence[Any]) -> bytes | None:
    """Return the statement that executes a plan, or None if the driver must adapt or refuse a parameter."""
    values, literal = [], _literals(raw)
    for value in params:
        if type(value) is int:
            values.append(b"%d" % value)
        elif isinstance(value, str) and "\0" not in value:  # libpq would take a NUL for the end
            values.append(literal(value))
        else:
            return None
    return b"EXECUTE %b(%b)" % (name, b", ".join(values))
