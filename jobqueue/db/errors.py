"""The kinds of database errors: an outage, a missing table, a lock that was not granted in time, values that the database refuses."""

from __future__ import annotations

from django.db import DEFAULT_DB_ALIAS
from django.db.utils import DatabaseError, InterfaceError, OperationalError, ProgrammingError

CONNECTION_ERRORS = (OperationalError, InterfaceError)
# Codes that Django raises as InternalError: the server accepts no writes now, because it is a standby or set
# to read-only; or it has ended the session, because its transaction was idle or lasted for too long.
UNABLE = ("25006", "25P03", "25P04")
# Errors of the database about values, or of Python about values that it reads from a row or computes with.
REFUSALS = (DatabaseError, ValueError, TypeError, ArithmeticError, RecursionError, LookupError, AttributeError)
SQLITE_ERROR = 1  # the code of errors of a statement; all other codes are about the file or its locks
NOT_UTF8 = "Could not decode to UTF-8"
IN_FAILED_TRANSACTION = "25P02"
LOCK_REFUSED = "55P03"
GIVEN_UP = ("57014", LOCK_REFUSED, "40P01")


def _sqlstate(error: BaseException) -> str | None:
    """Return the code of PostgreSQL's error behind a Django error, or None."""
    sqlstate: str | None = getattr(error.__cause__, "sqlstate", None)
    return sqlstate


def _is_statements_fault(error: BaseException) -> bool:
    """Return whether an OperationalError is about a value of the statement, and not about an unreachable database.

    SQLite raises it for JSON that it cannot read, PostgreSQL (class 54) for values that are nested too deep or too
    large for an index. Python's SQLite module raises it, without a code, for a text that is not UTF-8.
    """
    if str(error).startswith(NOT_UTF8):
        return True
    if (_sqlstate(error) or "").startswith("54"):
        return True
    return getattr(error.__cause__, "sqlite_errorcode", None) == SQLITE_ERROR and not is_missing_table(error)


def is_connection_error(error: BaseException) -> bool:
    """Return whether the connection or the server failed, not the statement. The statement may succeed on another connection.

    A server that accepts no writes counts as failed: after a failover, the old server or a standby reports this.
    """
    failed = isinstance(error, CONNECTION_ERRORS) and not _is_statements_fault(error)
    return failed or (isinstance(error, DatabaseError) and _sqlstate(error) in UNABLE)


def was_given_up(error: BaseException) -> bool:
    """Return whether the server canceled one statement: it took too long, waited too long for a lock, or was part of a deadlock.

    The connection can still be used.
    """
    return isinstance(error, DatabaseError) and _sqlstate(error) in GIVEN_UP


def is_outage(error: BaseException) -> bool:
    """Return whether the database cannot be reached now."""
    return is_connection_error(error) and not was_given_up(error)


def is_lock_refusal(error: BaseException) -> bool:
    """Return whether a statement failed because another transaction held a lock for too long."""
    return _sqlstate(error) == LOCK_REFUSED


def is_missing_table(error: BaseException) -> bool:
    """Return whether a table or a column does not exist, as before the first migrate."""
    text = str(error)
    # PostgreSQL's errors about tables and columns have classes. An error of the connection ("database … does not
    # exist") has none of them.
    if isinstance(error, ProgrammingError):
        return "does not exist" in text
    return isinstance(error, OperationalError) and ("no such table" in text or "no such column" in text)


def missing_tables(alias: str) -> str:
    """Return the advice for a missing table."""
    where = "" if alias == DEFAULT_DB_ALIAS else f" --database {alias}"
    return f"The tables of jobqueue are missing or out of date: run 'manage.py migrate{where}' first."


def is_refusal(error: BaseException) -> bool:
    """Return whether the database refuses the values of a statement, so that the same statement will always fail.

    An error that follows an earlier error of the same transaction is not about the values.
    """
    if is_connection_error(error) or _sqlstate(error) == IN_FAILED_TRANSACTION:
        return False
    return isinstance(error, REFUSALS)
