"""Count the processes of one test, and end them all if there are too many, so that a restart loop does not overload the machine."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import uuid
from pathlib import Path
from types import TracebackType
from typing import Self

LOOK_SECONDS = 0.02


class Crowd:
    """A mark in the environment of processes, and a thread that counts those that have it."""

    def __init__(self, most: int) -> None:
        """Set how many run at a time."""
        self.most, self.seen = most, 0
        self.mark = f"crowd-{uuid.uuid4()}"
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    @property
    def environment(self) -> dict[str, str]:
        """What the processes to count must have."""
        return {"FAULTS_CROWD": self.mark}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()
        self._kill()

    def members(self) -> list[int]:
        """Return the processes that have the mark and run."""
        return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and self._has_mark(entry)]

    def _has_mark(self, entry: Path) -> bool:
        try:
            return self.mark.encode() in (entry / "environ").read_bytes()
        except OSError:  # it has ended, or belongs to another user
            return False

    def _watch(self) -> None:
        while self.seen <= self.most and not self._ended.wait(LOOK_SECONDS):
            self.seen = max(self.seen, len(self.members()))
        if self.seen > self.most:
            self._kill()

    def _kill(self) -> None:
        while found := self.members():
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
