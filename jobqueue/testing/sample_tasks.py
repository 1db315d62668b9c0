"""Tasks for the conformance kit, declared with the decorator of django.tasks on the backend called ``default``.

A backend whose worker imports tasks by their path finds them here. A task that the default backend refuses, for instance a
coroutine where `supports_async_task` is false, stays a plain function.
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
    """Be an exception that cannot be built again from its ``args``."""

    def __init__(self, code: int, *, detail: str) -> None:
        """Keep both parts, and hand only one text to the parent."""
        super().__init__(f"{detail} ({code})")
        self.code, self.detail = code, detail


class SpeechlessError(Exception):
    """Be an exception that cannot be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


FATAL: dict[str, Callable[[], BaseException]] = {
    "builtins.SystemExit": lambda: SystemExit(3),
    "builtins.KeyboardInterrupt": KeyboardInterrupt,
    "builtins.GeneratorExit": GeneratorExit,
    "asyncio.exceptions.CancelledError": asyncio.CancelledError,
}
"""What a task can raise that is no `Exception`, by path."""


@_task()
def echo(value: Any = None, *values: Any, **named: Any) -> Any:
    """Return what it got: one value alone, or all of it."""
    return {"args": [value, *values], "kwargs": named} if values or named else value


@_task()
def other() -> None:
    """Do nothing, being another task."""


@_task()
def two_values() -> Any:
    """Return a tuple, which JSON does not have."""
    return (1, (2, 3))


@_task()
def unstorable() -> Any:
    """Return what JSON cannot hold."""
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
    """Raise an exception whose text cannot be had."""
    raise SpeechlessError


@_task()
def raise_fatal(path: str) -> None:
    """Raise one of `FATAL`."""
    raise FATAL[path]()  # noqa: RSE102 - it may be a function


@_task(takes_context=True)
def look_at_context(context: Any, *values: Any) -> dict[str, Any]:
    """Tell what the context says."""
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
    """Return what it got, after letting others run."""
    await asyncio.sleep(0)
    return value


@_task()
async def afail(text: str) -> None:
    """Raise a `ValueError` in a coroutine."""
    await asyncio.sleep(0)
    raise ValueError(text)


@_task(takes_context=True)
async def alook_at_context(context: Any) -> dict[str, Any]:
    """Tell in a coroutine what the context says."""
    await asyncio.sleep(0)
    return {"is_context": isinstance(context, compat.TaskContext), "attempt": context.attempt, "id": context.task_result.id}


def takes_no_context(value: int) -> int:
    """Be a function that has no argument called ``context``."""
    return value


async def coroutine_function() -> None:
    """Be a coroutine function that is no task."""
