"""What a task has reported through its context, and how much of it is written."""

from __future__ import annotations

import threading


class Progress:
    """The progress, message and metadata of one run; None means that the task has set none. Times are monotonic."""

    def __init__(self) -> None:
        """Create it with nothing reported."""
        self.percent: int | None = None
        self.message: str | None = None
        self.metadata: str | None = None
        self.marked_at: float | None = None
        self.dirty_since: float | None = None
        self.saved: threading.Event | None = None  # a thread of the task waits for it
        self.refused = False  # the database refused what `save` was to write
        self.saving = threading.Lock()

    def drop(self, percent: int | None, message: str | None, metadata: str | None) -> None:
        """Discard values that the database refuses, unless the task has set new ones meanwhile."""
        self.refused = metadata is not None
        self.percent = None if self.percent == percent else self.percent
        self.message = None if self.message == message else self.message
        self.metadata = None if self.metadata == metadata else self.metadata
