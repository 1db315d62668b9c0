"""Memory that a worker process shares with its parent: the nearest time limit of its runs, and whose it is.

The parent reads it also while the worker can say nothing, since a task keeps Python's lock. Times are of the monotonic clock, which all
processes of a machine share.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile

LAYOUT = struct.Struct("<dq")


class Board:
    """One time limit and one job."""

    def __init__(self, descriptor: int) -> None:
        """Take a file that has room for it; both processes map the same one."""
        self._memory = mmap.mmap(descriptor, LAYOUT.size)

    def show(self, at: float, job_id: int) -> None:
        """Show a limit; 0 says that there is none."""
        LAYOUT.pack_into(self._memory, 0, at, job_id)

    def read(self) -> tuple[float, int]:
        """Return the limit and the job."""
        at, job_id = LAYOUT.unpack_from(self._memory)
        return at, job_id


def new_file() -> int:
    """Return the descriptor of a file for a board; raise `OSError` if the system gives none."""
    with tempfile.TemporaryFile() as file:
        file.truncate(LAYOUT.size)
        return os.dup(file.fileno())
