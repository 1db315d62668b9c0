"""A plan that the server keeps on a project's own connection, for the statement that makes one job after another.

To plan it takes the server a third of its time for a job. PREPARE and EXECUTE are sent as text: what a driver prepares has to be a message
of its own, and takes the client longer than planning takes the server. A session that has lost the plan (DISCARD, or a pooler that nobody
has noticed), or whose table has changed, says so before it has done anything; the statement is then sent as it is, and no plan is kept any
more on that connection.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from typing import Any

from psycopg import Error
from psycopg.pq import Escaping

from jobqueue import conf
from jobqueue.db import pooler

# As often a statement is sent first: most connections of a web server make few jobs before they are closed.
PREPARED_AFTER = 5
MOST = 20
KNOWN = "_jobqueue_prepared"


def execution(connection: Any, sql: str, params: Sequence[Any]) -> bytes | None:
    """Return the text that runs a statement by its kept plan; None where it has none. Nobody may have a transaction open.

    Statements are counted by their texts, on each connection of the driver.
    """
    raw = connection.connection
    known: dict[str, int | bytes] | None = getattr(raw, KNOWN, {})
    if known is None or not conf.current().notify:  # which is off where a pooler is there that cannot be seen
        return None
    setattr(raw, KNOWN, known)
    found = known.get(sql, 0)
    if isinstance(found, bytes):
        return _called(raw, found, params)
    if found >= PREPARED_AFTER:
        if (name := _prepare(connection, sql, len(params))) is None:
            give_up(raw)
            return None
        known[sql] = name
    elif found or len(known) < MOST:
        known[sql] = found + 1
    return None


def give_up(raw: Any) -> None:
    """Keep no plans on this connection of the driver any more."""
    setattr(raw, KNOWN, None)


def literal(raw: Any, text: str) -> bytes:
    """Return a text without a NUL as SQL has it."""
    return bytes(Escaping(raw.pgconn).escape_literal(text.encode(raw.info.encoding)))


def _prepare(connection: Any, sql: str, number: int) -> bytes | None:
    """Let the server keep the plan of a statement, and return its name; None where that cannot be."""
    parts = sql.split("%s")
    if len(parts) != number + 1 or any("%" in part for part in parts) or pooler.stands_between(connection):
        return None
    text = "".join(itertools.chain.from_iterable(zip(parts, [*(f"${place + 1}" for place in range(number)), ""], strict=True)))
    # By its text, so that under one name there is never another statement, whatever session a pooler leads to.
    name = f"jobqueue_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    try:
        # Past Django's cursor, so that this counts as nobody's statement.
        connection.connection.execute(f"PREPARE {name} AS {text}")
    except Error:
        return None  # the statement itself will tell what is wrong, if it is more than the plan
    return name.encode()


def _called(raw: Any, name: bytes, params: Sequence[Any]) -> bytes | None:
    """Return the call of a plan; None for parameters that are the driver's to write, or to refuse."""
    values = []
    for value in params:
        if type(value) is int:
            values.append(b"%d" % value)
        elif isinstance(value, str) and "\0" not in value:  # libpq would take a NUL for the end
            values.append(literal(raw, value))
        else:
            return None
    return b"EXECUTE %b(%b)" % (name, b", ".join(values))
