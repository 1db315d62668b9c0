"""Who this worker process is: a random identity per start, since host names and pids repeat.

On SQLite the process holds a file lock, named by its identity, beside the database, for as long as it lives. A lock that is free
means that its process is dead, and its jobs can be recovered at once, without waiting for their leases.
"""

from __future__ import annotations

import fcntl
import os
import socket
import uuid
from pathlib import Path
from typing import IO, Any

from jobqueue.models import Job


class Identity:
    """Name a worker process, and tell which of its neighbours on the same database file are dead."""

    def __init__(self) -> None:
        """Draw a new identity."""
        self.uuid = uuid.uuid4()
        self.worker_id = str(self.uuid)
        self.host = socket.gethostname()[:255]
        self.pid = os.getpid()
        self._directory: Path | None = None
        self._held: IO[Any] | None = None

    @property
    def description(self) -> str:
        """What a person reads: host and pid are for people alone."""
        return f"worker {self.worker_id} (pid {self.pid} on {self.host})"

    def hold(self) -> None:
        """Take the file lock, where the job database is a file."""
        path = Job.objects.database.file
        if path is None:
            return
        self._directory = path.with_name(f"{path.name}.workers")
        self._directory.mkdir(exist_ok=True)
        # Before the first claim: whoever owns jobs has a lock file.
        # Named as a worker's only once it is locked: a neighbour that looks meanwhile would take it for a dead one's.
        draft = self._directory / f".{self.worker_id}"
        self._held = draft.open("w")
        fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        draft.rename(self._directory / self.worker_id)

    def release(self) -> None:
        """Give the file lock back."""
        if self._held is not None and self._directory is not None:
            (self._directory / self.worker_id).unlink(missing_ok=True)
            self._held.close()
            self._held = None

    def drop_in_child(self) -> None:
        """Let go of the lock in a forked child; the parent still holds it."""
        if self._held is not None:
            self._held.close()
            self._held = None

    def dead_neighbours(self) -> list[str]:
        """Return the identities on this database file whose processes are gone, and forget their files."""
        if self._directory is None:
            return []
        return [path.name for path in self._directory.glob("[!.]*") if path.name != self.worker_id and _forget_if_free(path)]


def _forget_if_free(path: Path) -> bool:
    try:
        with path.open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)
            return True
    except (BlockingIOError, FileNotFoundError):
        return False
