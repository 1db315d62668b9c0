"""The rules of settings: the values that each accepts, in words and as a check."""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from jobqueue.exceptions import MAX_DELAY_SECONDS


class Rule(NamedTuple):
    """The values that a setting accepts, in words and as a check."""

    text: str
    accepts: Callable[[Any], bool]


def number(text: str, accepts: Callable[[float], bool]) -> Rule:
    """Return a rule for a finite number; a bool is not one."""
    return Rule(
        text, lambda value: isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and accepts(value)
    )


def whole(text: str, accepts: Callable[[int], bool]) -> Rule:
    """Return a rule for a whole number; a bool is not one."""
    return Rule(text, lambda value: isinstance(value, int) and not isinstance(value, bool) and accepts(value))


def texts(text: str) -> Rule:
    """Return a rule for a list or tuple of texts that are not empty; a single text is not accepted."""
    return Rule(text, lambda value: isinstance(value, list | tuple) and all(isinstance(item, str) and item.strip() for item in value))


POSITIVE = number("a number above 0, at most 31622400 (366 days)", lambda value: 0 < value <= MAX_DELAY_SECONDS)
NOT_NEGATIVE = number("a number from 0 to 31622400 (366 days)", lambda value: 0 <= value <= MAX_DELAY_SECONDS)
COUNT = whole("a whole number from 1 to 1000", lambda value: 1 <= value <= 1000)
MAX_RELEASE = 200


def is_service(value: Any) -> bool:
    """Return whether a value is the name of a service."""
    return isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9_.-]{1,50}", value) is not None


SERVICE = Rule("a name of 1 to 50 letters, digits, dots, dashes and underscores", is_service)


def is_callable_or_path(value: Any) -> bool:
    """Return whether a value can be called, or may be the dotted path of a callable."""
    return callable(value) or (isinstance(value, str) and all(part.isidentifier() for part in value.split(".")) and "." in value)


def is_slots(value: Any) -> bool:
    """Return whether a value maps tenants to their slots."""
    return isinstance(value, Mapping) and all(isinstance(name, str) and name and COUNT.accepts(number) for name, number in value.items())


def is_release(value: Any) -> bool:
    """Return whether a value is a release, or a callable."""
    return callable(value) or (isinstance(value, str) and 0 < len(value) <= MAX_RELEASE)


TENANTS = Rule(
    "a mapping of tenants to their slots (1 to 1000), or a callable that returns one, or its dotted path",
    lambda value: is_slots(value) or is_callable_or_path(value),
)

TENANT_CONTEXT = Rule("a callable of the tenant that returns a context manager, or its dotted path", is_callable_or_path)
AUTHENTICATOR = Rule("a callable of the request that returns a user or None, or its dotted path", is_callable_or_path)
VISIBLE = Rule("a callable of the user that returns a Q on Job, or its dotted path", is_callable_or_path)
HOOKS = Rule(
    "a list of callables of one run that return a context manager, or their dotted paths",
    lambda value: isinstance(value, list | tuple) and all(is_callable_or_path(item) for item in value),
)
HOOK = Rule("a callable of one job, or its dotted path", is_callable_or_path)
BOOLEAN = Rule("True or False", lambda value: isinstance(value, bool))
SETUP = Rule("the dotted path of a callable without arguments", lambda value: isinstance(value, str) and is_callable_or_path(value))
