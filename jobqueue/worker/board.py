"""Memory that a worker shares with its parent process: the nearest time limit of its runs, and the job that has it.

The parent can read it even if the worker can send nothing, because a task holds the GIL. Times are those of the monotonic clock, which
all processes of a machine share.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile

LAYOUT = struct.Struct("<dq")


class Board:
    """A shared time limit, with the id of its job."""

    def __init__(self, descriptor: int) -> None:
        """Map a file of `LAYOUT.size` bytes; both processes map the same file."""
        self._memory = mmap.mmap(descriptor, LAYOUT.size)

    def show(self, at: float, job_id: int) -> None:
        """Write a limit as a monotonic time, and its job; 0 means that there is no limit."""
        LAYOUT.pack_into(self._memory, 0, at, job_id)

    def read(self) -> tuple[float, int]:
        """Return the limit as a monotonic time, and its job."""
        at, job_id = LAYOUT.unpack_from(self._memory)
        return at, job_id


def new_file() -> int:
    """Return the descriptor of a new file for a board; raise `OSError` if the system cannot create one."""
    with tempfile.TemporaryFile() as file:
        file.truncate(LAYOUT.size)
        return os.dup(file.fileno())
