"""The times that a row can hold: those that Python, both databases and every time zone can read and write."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from jobqueue.core.texts import safe_repr
from jobqueue.exceptions import InvalidOption

FIRST = datetime(1970, 1, 1, tzinfo=UTC)
LAST = datetime(9000, 1, 1, tzinfo=UTC)
ONE_DAY = timedelta(days=1)  # no offset of a time zone is longer
RULE = f"it must lie between {FIRST:%Y-%m-%d} and {LAST:%Y-%m-%d}"


def is_readable(moment: datetime) -> bool:
    """Return whether a row can hold this time. A time without a time zone must fit in every zone."""
    try:
        if moment.utcoffset() is None:
            return FIRST + ONE_DAY <= moment.replace(tzinfo=UTC) <= LAST - ONE_DAY
        return FIRST <= moment <= LAST
    except Exception:  # noqa: BLE001 - the class of a time zone can raise any exception, and its offset may be outside of the calendar
        return False


def check_moment(value: Any, name: str) -> None:
    """Reject a value that is not a datetime that a row can hold."""
    if not isinstance(value, datetime):
        raise InvalidOption(f"{name} is {safe_repr(value)}, a {type(value).__qualname__}; it must be a datetime.")
    if not is_readable(value):
        raise InvalidOption(f"{name} is {safe_repr(value)}; {RULE}. Use a time in that range.")


def check_ahead(value: Any, name: str) -> None:
    """Reject a value that is neither a datetime that a row can hold nor a timedelta that leads to one from now."""
    if isinstance(value, timedelta):
        if value > timedelta() and value > LAST - datetime.now(UTC):
            raise InvalidOption(f"{name} is {safe_repr(value)}, counted from now; {RULE}. Use a shorter timedelta.")
        return
    if not isinstance(value, datetime):
        given = f"{name} is {safe_repr(value)}, a {type(value).__qualname__}"
        raise InvalidOption(f"{given}; it must be a datetime or a timedelta. Use datetime.combine() or timedelta(seconds=...).")
    check_moment(value, name)


def check_run_after(value: Any) -> None:
    """Reject a value that is neither None nor a time that a row can hold."""
    if value is not None:
        check_ahead(value, "run_after")


def moment_of(text: object) -> datetime | None:
    """Return the time of an ISO text, or None if it is not a time with a time zone."""
    try:
        when = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return when if when is not None and when.tzinfo is not None else None
