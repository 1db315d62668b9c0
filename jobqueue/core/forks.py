"""Forks: code of the user's project may fork. The child must never return into jobqueue, where it would act as its parent."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class _Process:
    """The id of this process, which is stored and updated after a fork.

    To request it from the system takes longer than all other checks of a short run.
    """

    id = os.getpid()


def _renew() -> None:
    _Process.id = os.getpid()


os.register_at_fork(after_in_child=_renew)


def process_id() -> int:
    """Return the id of this process."""
    return _Process.id


def exit_if_forked(pid: int, error: BaseException | None = None) -> None:
    """End this process immediately, with the exit status of its exception, unless it is the one that began the task (`pid`).

    Nothing is cleaned up, because all of it belongs to the parent: connections, locks, buffers that are not flushed.
    """
    if _Process.id != pid:
        os._exit(status_of(error))


def guarded(function: Callable[P, T]) -> Callable[P, T]:
    """Return a function that ends the process if the call returns in a child."""

    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        pid = _Process.id
        try:
            value = function(*args, **kwargs)
        except BaseException as error:
            exit_if_forked(pid, error)
            raise
        exit_if_forked(pid)
        return value

    return call


def aguarded(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a coroutine function that ends the process if the call returns in a child."""

    async def call(*args: Any, **kwargs: Any) -> Any:
        pid = _Process.id
        try:
            value = await function(*args, **kwargs)
        except BaseException as error:
            exit_if_forked(pid, error)
            raise
        exit_if_forked(pid)
        return value

    return call


def status_of(error: BaseException | None) -> int:
    """Return the exit status of a process that ends because of an exception."""
    if error is None:
        return 0
    if isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
        return (error.code or 0) & 0xFF
    return 1
