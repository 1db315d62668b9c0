"""The options of a task: names, rules, and errors that name the value, the rule and the fix."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from jobqueue import compat
from jobqueue.core import moments, payload, phases, states, time_limits, webhook_rules
from jobqueue.core.texts import safe_repr
from jobqueue.exceptions import MAX_DELAY_SECONDS, InvalidOption

MAX_KEY = 200
MAX_PATH = 450
MAX_ATTEMPTS = 1_000_000
FARTHEST_PRIORITY = 100


class InvalidTaskOption(InvalidOption, compat.InvalidTask):  # type: ignore[misc,valid-type]
    """The error for a wrong value of an option that django.tasks also has; it is also Django's error for this."""


def check_names(given: Iterable[str], known: Iterable[str]) -> None:
    """Reject unknown names of options, and suggest the most similar one."""
    names = sorted(known)
    for name in given:
        if name not in names:
            near = difflib.get_close_matches(name, names, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"options are: {', '.join(names)}."
            raise InvalidOption(f"Unknown option {name!r}: {hint}")


def check_max_attempts(value: Any) -> None:
    """Reject values other than a whole number from 1."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_ATTEMPTS:
        raise InvalidOption(
            f"max_attempts is {_shown(value)}; it must be a whole number from 1 to {MAX_ATTEMPTS}, the first attempt included."
        )


def check_retry_on(value: Any) -> None:
    """Reject values other than a tuple of exception classes."""
    if not isinstance(value, tuple) or not all(isinstance(item, type) and issubclass(item, BaseException) for item in value):
        raise InvalidOption(f"retry_on is {_shown(value)}; it must be a tuple of exception classes, such as (OSError,).")


def check_backoff(value: Any) -> None:
    """Reject values that are not callable."""
    if not callable(value):
        raise InvalidOption(
            f"backoff is {_shown(value)}; it must be fixed(...), linear(...), exponential(...) or a callable of (exception, failures)."
        )


def check_recovery(value: Any) -> None:
    """Reject values other than the names of recoveries; None means the project's setting."""
    if value is not None and value not in states.Recovery.values:
        raise InvalidOption(f"recovery is {_shown(value)}; it must be one of {', '.join(states.Recovery.values)}.")


def check_unique_key(value: Any) -> None:
    """Reject a key that is too long, empty or not text; the result of a callable is checked later."""
    if value is None or callable(value):
        return
    if not isinstance(value, str) or not value or len(value) > MAX_KEY:
        raise InvalidOption(f"unique_key is {_shown(value)}; it must be text of 1 to {MAX_KEY} characters, or a callable of the arguments.")
    if "\0" in value or not _encodable(value):
        raise InvalidOption("unique_key holds a NUL character or a lone surrogate, which the database cannot store.")


def check_target(value: Any) -> None:
    """Reject a target that is too long, empty, not text, or not possible in a URL; the result of a callable is checked later."""
    if value is not None and not callable(value):
        _check_name("target", value, ", or a callable of the arguments", also="/")


def check_tenant(value: Any) -> None:
    """Reject a tenant that is too long, empty or not text."""
    if value is not None:
        _check_name("tenant", value, "")


def _check_name(option: str, value: Any, more: str, also: str = "") -> None:
    if not isinstance(value, str) or not value or len(value) > MAX_KEY:
        raise InvalidOption(f"{option} is {_shown(value)}; it must be text of 1 to {MAX_KEY} characters{more}.")
    wrong = next((character for character in value if character in also or unicodedata.category(character) in ("Cc", "Cs")), None)
    if wrong is not None:
        rule = f'no "{also}" and no control characters' if also else "no control characters"
        raise InvalidOption(f"{option} is {_shown(value)}, with {wrong!r} in it; it must have {rule}.")


def check_priority(value: Any) -> None:
    """Reject values other than a whole number in Django's range."""
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > FARTHEST_PRIORITY:
        rule = f"it must be a whole number from -{FARTHEST_PRIORITY} to {FARTHEST_PRIORITY}"
        raise InvalidTaskOption(f"priority is {_shown(value)}; {rule}. The default is 0.")


def check_backend(value: Any) -> None:
    """Reject values other than text; Django rejects a name that is not in TASKS."""
    if not isinstance(value, str):
        raise InvalidTaskOption(f"backend is {_shown(value)}; it must be text. Use one of the names in TASKS.")


def check_takes_context(value: Any) -> None:
    """Reject values other than True and False."""
    _check_flag("takes_context", value)


def check_transactional(value: Any) -> None:
    """Reject values other than True and False."""
    _check_flag("transactional", value)


def check_secret(value: Any) -> None:
    """Reject values other than a tuple of names of arguments."""
    if not isinstance(value, tuple) or not all(isinstance(name, str) and any(letter.isalpha() for letter in name) for name in value):
        raise InvalidOption(f'secret is {_shown(value)}; it must be a tuple of names of arguments, such as ("customer_code",).')


def check_schedulable(value: Any) -> None:
    """Reject values other than True and False."""
    _check_flag("schedulable", value)


def _check_flag(option: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise InvalidOption(f"{option} is {_shown(value)}; it must be True or False.")


def check_metadata(value: Any) -> None:
    """Reject values other than a mapping that JSON returns unchanged."""
    if value is not None:
        if not isinstance(value, Mapping):
            raise InvalidOption(f"metadata is a {type(value).__qualname__}; it must be a mapping.")
        payload.dumps_metadata(value)


def check_phases(value: Any) -> None:
    """Reject values other than the phases of a pipeline; an empty value means no phases."""
    if value:
        phases.declared(value)


def check_webhook_url(value: Any) -> None:
    """Reject values that cannot be the URL of a receiver of webhooks."""
    if value is not None and (problem := webhook_rules.url_problem(value)):
        shown = webhook_rules.shown_url(value) if isinstance(value, str) else value
        raise InvalidOption(f"webhook_url is {_shown(shown)}: {problem}. Use one such as https://example.com/hook.")


def check_timeout(value: Any) -> None:
    """Reject values other than a time above 0; None means the project's setting."""
    if value is not None:
        time_limits.in_seconds(value)


def check_expires(value: Any) -> None:
    """Reject values other than a datetime that a row can hold, or a time from the enqueue; None means never."""
    if isinstance(value, datetime):
        moments.check_moment(value, "expires")
    elif value is not None:
        expires_in(value)


def expires_in(value: Any) -> timedelta:
    """Return a number of seconds or a timedelta, above 0 and up to 366 days, as a timedelta; reject other values."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= MAX_DELAY_SECONDS:
        rule = f"it must be a number of seconds above 0, at most {MAX_DELAY_SECONDS} (366 days), a timedelta, or a datetime"
        raise InvalidOption(f"expires is {safe_repr(value)}; {rule}. Leave it out for no limit.")
    return timedelta(seconds=seconds)


def check_path(value: str) -> None:
    """Reject a task whose path is too long for the table."""
    if len(value) > MAX_PATH:
        rule = f"it must have at most {MAX_PATH} characters"
        raise InvalidOption(f"The path of the task is {_shown(value)}; {rule}. Give it a shorter name.")


def check_queue(value: Any) -> None:
    """Reject a queue name that the table cannot store."""
    if not isinstance(value, str) or not value or len(value) > MAX_KEY or "\0" in value or not _encodable(value):
        raise InvalidOption(f"queue_name is {_shown(value)}; it must be text of 1 to {MAX_KEY} characters without NUL.")


def resolved(name: str, value: str | Callable[..., Any] | None, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """Return the unique key or the target for these arguments; "" means that there is none."""
    if not callable(value):
        return value or ""
    result = value(*args, **kwargs)
    if result is None:
        return ""
    if callable(result):
        raise InvalidOption(f"{name} returned {_shown(result)}; it must return text or None.")
    CHECKS[name](result)
    return str(result)


CHECKS: dict[str, Callable[[Any], None]] = {"unique_key": check_unique_key, "target": check_target}


def _encodable(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(value: Any) -> str:
    if not isinstance(value, str):
        return safe_repr(value)
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}… ({len(text)} characters)"
