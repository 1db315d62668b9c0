"""The texts of errors about values that JSON cannot store: the type of the value, and what to pass instead.

They never contain the value.
"""

import datetime
import decimal
import enum
import inspect
import pathlib
import uuid
from collections import UserString
from collections.abc import Iterable, Mapping

from django.utils.functional import LazyObject, Promise

FIXES: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (LazyObject, "Pass the value that it wraps, such as str(x)."),
    (enum.Enum, "Pass its value (x.value)."),
    ((bytes, bytearray, memoryview), "Decode it, or pass base64.b64encode(x).decode() or the id of a stored file."),
    ((datetime.date, datetime.time), "Pass x.isoformat() and parse it in the task."),
    (datetime.timedelta, "Pass x.total_seconds()."),
    ((decimal.Decimal, uuid.UUID, pathlib.PurePath), "Pass str(x) and convert it back in the task."),
    ((str, UserString, Promise), "Pass str(x)."),
    ((set, frozenset), "Pass sorted(x) or list(x)."),
    (Mapping, "Pass dict(x)."),
    (Iterable, "Pass list(x)."),
)


def fix(value: object) -> str:
    """Return what to pass instead of a value of a type that JSON does not have."""
    if hasattr(value.__class__, "_meta"):  # not type(): request.user is a lazy object, which has the class of the user
        return "Pass its primary key (x.pk) and load it in the task."
    for kinds, fix in FIXES:
        if isinstance(value, kinds):
            return fix
    return "Use None, bool, int, float, str, list or dict, for instance the id of a stored record."


def type_name(value: object) -> str:
    """Return the name of a value's type, with its module unless it is built in."""
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def shown_key(key: str) -> str:
    """Return a key for an error: printable and short."""
    return ascii(key[:40])[1:-1] + ("…" if len(key) > 40 else "")


def not_run(value: object) -> str:
    """Return the error for a result whose code has not run, such as a coroutine that a wrapper returned; "" for any other."""
    if inspect.iscoroutine(value):
        value.close()  # otherwise, Python warns about it later, at another place
        return (
            "The task returned a coroutine, which is not awaited: the body of the coroutine did not run. Declare the task with async def, "
            "or mark its wrapper with asgiref.sync.markcoroutinefunction."
        )
    if inspect.isawaitable(value):
        return f"The task returned a {type(value).__qualname__}, which is not awaited. Declare the task with async def, and await it there."
    if inspect.isgenerator(value) or inspect.isasyncgen(value):
        return f"The task returned {'a' if inspect.isgenerator(value) else 'an async'} generator, whose body did not run. Return list(...)."
    return ""
