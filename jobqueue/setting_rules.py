"""The rules that settings obey: what values one takes, in words and as a judgement."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from jobqueue.exceptions import MAX_DELAY_SECONDS


class Rule(NamedTuple):
    """Say in words what values a setting takes, and judge one."""

    text: str
    accepts: Callable[[Any], bool]


def number(text: str, accepts: Callable[[float], bool]) -> Rule:
    """Return a rule for a finite number; a bool is none."""
    return Rule(
        text, lambda value: isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and accepts(value)
    )


def whole(text: str, accepts: Callable[[int], bool]) -> Rule:
    """Return a rule for a whole number; a bool is none."""
    return Rule(text, lambda value: isinstance(value, int) and not isinstance(value, bool) and accepts(value))


def texts(text: str) -> Rule:
    """Return a rule for a list or tuple of texts that are not empty; one text alone is none."""
    return Rule(text, lambda value: isinstance(value, list | tuple) and all(isinstance(item, str) and item.strip() for item in value))


POSITIVE = number("a number above 0, at most 31622400 (366 days)", lambda value: 0 < value <= MAX_DELAY_SECONDS)
NOT_NEGATIVE = number("a number from 0 to 31622400 (366 days)", lambda value: 0 <= value <= MAX_DELAY_SECONDS)
COUNT = whole("a whole number from 1 to 1000", lambda value: 1 <= value <= 1000)
