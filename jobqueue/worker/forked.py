"""A task may fork. Its child must never come back into the worker: it would run the jobs that its copy of the pool holds."""

from __future__ import annotations

import os


def leave_if_forked(pid: int, error: BaseException | None = None) -> None:
    """End this process at once unless it is the one that began the task (`pid`); with the status that its exception asks for.

    Nothing is cleaned up, since all of it belongs to the parent: connections, locks, what is not flushed.
    """
    if os.getpid() != pid:
        os._exit(_status(error))


def _status(error: BaseException | None) -> int:
    if error is None:
        return 0
    if isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
        return (error.code or 0) & 0xFF
    return 1
