"""Time limits of jobs: their values, their place in the job's options, and their texts."""

from __future__ import annotations

import json
import math
from datetime import timedelta
from typing import Any

from jobqueue.core.texts import safe_repr
from jobqueue.exceptions import MAX_DELAY_SECONDS, InvalidOption, TimeLimitExceeded

OPTION = "timeout"
NO_OPTIONS = "{}"


def in_seconds(value: object) -> float:
    """Return a time limit in seconds; reject a value that is not a number of seconds or a timedelta, above 0 and up to 366 days."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= MAX_DELAY_SECONDS:
        rule = f"it must be a number of seconds above 0, at most {MAX_DELAY_SECONDS} (366 days), or a timedelta"
        raise InvalidOption(f"timeout is {safe_repr(value)}; {rule}. Leave it out for no limit.")
    return float(seconds)


def options_text(seconds: float | None) -> str:
    """Return a job's options, as JSON text, with this time limit."""
    return NO_OPTIONS if seconds is None else json.dumps({OPTION: seconds})


def of_options(options: Any) -> float | None:
    """Return the time limit in a job's options, or None if there is none; the options may have been edited to any value."""
    seconds = options.get(OPTION) if isinstance(options, dict) else None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
        return None
    return float(min(seconds, MAX_DELAY_SECONDS))


def of_text(options: str) -> float | None:
    """Return the time limit in a job's options as JSON text."""
    try:
        return None if options == NO_OPTIONS else of_options(json.loads(options))
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None


def shown(seconds: float) -> str:
    """Return a time limit as text."""
    return f"{seconds:.12g} s"


def exceeded(seconds: float | None) -> TimeLimitExceeded:
    """Return the error of a run that exceeded its time limit."""
    return TimeLimitExceeded() if seconds is None else TimeLimitExceeded(f"The time limit of {shown(seconds)} was exceeded")
