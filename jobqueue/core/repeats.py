"""Log lines that could be repeated for each row. For each kind and interval, one line is logged, and the rest is counted.

The next line of the kind reports the number. If no such line follows, `flush` reports it. Each worker calls
`flush` regularly.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

INTERVAL_SECONDS = 60.0
MAX_KINDS = 1000

logger = logging.getLogger("jobqueue")


@dataclass(slots=True)
class _Kind:
    """The last line of one kind, its time, and the number of lines after it that were not logged."""

    level: int
    text: str
    at: float
    left_out: int = 0


_Key = tuple[str, str, type[BaseException] | None]
_kinds: dict[_Key, _Kind] = {}


def log(level: int, text: str, *values: Any, kind: str = "", exc_info: Any = None, extra: Mapping[str, Any] | None = None) -> None:
    """Log a line. If a line of its kind was logged in the last interval, only count it.

    Lines are of one kind if they have the same text without its values, the same `kind`, and the same class of the
    exception that is being handled.
    """
    # No lock, because an exception that is raised in a task's thread could leave it locked. So two threads may
    # both log at the same time.
    now, key = time.monotonic(), (text, kind, sys.exc_info()[0])
    seen = _kinds.get(key)
    if seen is not None and now - seen.at < INTERVAL_SECONDS:
        seen.left_out += 1
        return
    if seen is None and len(_kinds) >= MAX_KINDS:
        flush(0.0)
        _kinds.clear()
    _kinds[key] = _Kind(level, text % values if values else text, now)
    if seen is not None and seen.left_out:
        text, values = f"{text} (%d more like this were left out of the log)", (*values, seen.left_out)
    logger.log(level, text, *values, exc_info=exc_info, extra=extra, stacklevel=2)


def flush(seconds: float = INTERVAL_SECONDS) -> None:
    """Log how many lines were left out, for each kind whose last line is at least `seconds` old."""
    now = time.monotonic()
    for seen in list(_kinds.values()):
        if seen.left_out and now - seen.at >= seconds:
            number, seen.left_out, seen.at = seen.left_out, 0, now
            logger.log(seen.level, "%d more lines like this were left out of the log: %s", number, seen.text)


def forget() -> None:
    """Forget the lines that were logged."""
    _kinds.clear()
