"""The identity of a worker process: a random UUID for each start, since host names and process ids repeat.

On SQLite the process holds a lock on a file beside the database while it lives. The name of the file is the identity. If the lock
is free, the process is dead, and other workers recover its jobs at once. They need not wait until the leases run out.
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
    """The identity of a worker process, and its check for dead workers on the same database file."""

    def __init__(self) -> None:
        """Generate a new identity."""
        self.uuid = uuid.uuid4()
        self.worker_id = str(self.uuid)
        self.host = socket.gethostname()[:255]
        self.pid = os.getpid()
        self._directory: Path | None = None
        self._held: IO[Any] | None = None

    @property
    def description(self) -> str:
        """The identity as text for operators; jobqueue makes no decision by host or pid."""
        return f"worker {self.worker_id} (pid {self.pid} on {self.host})"

    def hold(self) -> None:
        """Take the file lock if the job database is a file; call this before the first claim.

        Each worker that owns jobs then has a lock file.
        """
        path = Job.objects.database.file
        if path is None:
            return
        self._directory = path.with_name(f"{path.name}.workers")
        self._directory.mkdir(exist_ok=True)
        # Renamed only when locked: a worker that finds the file unlocked concludes that this process is dead.
        draft = self._directory / f".{self.worker_id}"
        self._held = draft.open("w")
        fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        draft.rename(self._directory / self.worker_id)

    def release(self) -> None:
        """Release the file lock and delete its file."""
        if self._held is not None and self._directory is not None:
            (self._directory / self.worker_id).unlink(missing_ok=True)
            self._held.close()
            self._held = None

    def drop_in_child(self) -> None:
        """Close the lock file in a forked child; the parent still holds the lock."""
        if self._held is not None:
            self._held.close()
            self._held = None

    def dead_neighbours(self) -> list[str]:
        """Return the identities of workers on this database file whose processes have died, and delete their lock files."""
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
