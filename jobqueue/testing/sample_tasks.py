"""Tasks for the conformance kit, declared with the decorator of django.tasks on the backend ``default``.

A backend whose worker imports tasks by path finds them here. A task that the default backend refuses stays a plain function: for
instance, a coroutine function if `supports_async_task` is false.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from jobqueue import compat

_decorator: Any = compat.module("").task


def _task(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    def declare(function: Callable[..., Any]) -> Any:
        try:
            return _decorator(**options)(function)
        except compat.InvalidTask:
            return function

    return declare


class SampleError(Exception):
    """An exception that cannot be recreated from its ``args``."""

    def __init__(self, code: int, *, detail: str) -> None:
        """Store both parts, and pass a single text to the base class."""
        super().__init__(f"{detail} ({code})")
        self.code, self.detail = code, detail


class SpeechlessError(Exception):
    """An exception whose text cannot be read."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


FATAL: dict[str, Callable[[], BaseException]] = {
    "builtins.SystemExit": lambda: SystemExit(3),
    "builtins.KeyboardInterrupt": KeyboardInterrupt,
    "builtins.GeneratorExit": GeneratorExit,
    "asyncio.exceptions.CancelledError": asyncio.CancelledError,
}
"""The exceptions that a task can raise and that are no `Exception`, by the path of the task."""


@_task()
def echo(value: Any = None, *values: Any, **named: Any) -> Any:
    """Return the arguments: one value alone, or all of them."""
    return {"args": [value, *values], "kwargs": named} if values or named else value


@_task()
def other() -> None:
    """Do nothing; a second task, other than `echo`."""


@_task()
def two_values() -> Any:
    """Return a tuple, which JSON does not have."""
    return (1, (2, 3))


@_task()
def unstorable() -> Any:
    """Return a value that JSON cannot represent."""
    return object()


@_task()
def fail(text: str = "no") -> None:
    """Raise a `ValueError`."""
    raise ValueError(text)


@_task()
def fail_in_its_own_way() -> None:
    """Raise an exception with a constructor of its own."""
    raise SampleError(42, detail="odd")


@_task()
def fail_speechless() -> None:
    """Raise an exception whose text cannot be read."""
    raise SpeechlessError


@_task()
def raise_fatal(path: str) -> None:
    """Raise one of the exceptions in `FATAL`."""
    raise FATAL[path]()  # noqa: RSE102 - it may be a function


@_task(takes_context=True)
def look_at_context(context: Any, *values: Any) -> dict[str, Any]:
    """Return what the context reports."""
    result = context.task_result
    return {
        "is_context": isinstance(context, compat.TaskContext),
        "attempt": context.attempt,
        "id": result.id,
        "status": str(result.status),
        "path": result.task.module_path,
        "args": result.args,
        "values": list(values),
    }


@_task()
async def aecho(value: Any) -> Any:
    """Return the argument, after a switch to other coroutines."""
    await asyncio.sleep(0)
    return value


@_task()
async def afail(text: str) -> None:
    """Raise a `ValueError` in a coroutine."""
    await asyncio.sleep(0)
    raise ValueError(text)


@_task(takes_context=True)
async def alook_at_context(context: Any) -> dict[str, Any]:
    """Return what the context of a coroutine reports."""
    await asyncio.sleep(0)
    return {"is_context": isinstance(context, compat.TaskContext), "attempt": context.attempt, "id": context.task_result.id}


def takes_no_context(value: int) -> int:
    """Return the argument; a function without an argument called ``context``."""
    return value


async def coroutine_function() -> None:
    """Do nothing; a coroutine function that is not a task."""
