"""How far a reader of the log of events has come, for the reader itself and as text for its clients."""

from __future__ import annotations

import re
from typing import NamedTuple, Self

_TEXT = re.compile(r"([0-9a-f]{1,16})-(\d{1,19})(?:-(\d{1,19})-(\d{1,19}))?", re.ASCII)


class Position(NamedTuple):
    """How far a client has come, as it is sent to it.

    The client has seen all events of transactions before `horizon`, and of those before `settled` the events up to `last_id`. `history`
    names the database and its past: transactions have other numbers in another one, such as one restored from a dump.
    """

    history: str
    horizon: int
    settled: int = 0
    last_id: int = 0

    @classmethod
    def of(cls, text: str) -> Self | None:
        """Return the position that a text states; None if it states none."""
        found = _TEXT.fullmatch(text)
        if found is None:
            return None
        numbers = [int(one or 0) for one in found.groups()[1:]]
        return cls(found[1], *numbers) if max(numbers) < 2**63 else None

    def __str__(self) -> str:
        return f"{self.history}-{self.horizon}-{self.settled}-{self.last_id}" if self.settled else f"{self.history}-{self.horizon}"


class Cursor(NamedTuple):
    """Say how far a reader has come.

    `since` is a snapshot: all that it shows was read. Where there was more than one read returns, `upto` is the snapshot that is being
    read by, and `after_id` the last row of it. Of transactions before `settled`, the rows up to `last_id` were read, too.
    """

    since: str
    upto: str = ""
    after_id: int = 0
    settled: int = 0
    last_id: int = 0
    history: str = "0"

    @classmethod
    def at(cls, horizon: int) -> Cursor:
        """Return the cursor of a reader that has seen nothing from this horizon on."""
        return cls(f"{horizon}:{horizon}:")

    @classmethod
    def behind(cls, position: Position) -> Cursor:
        """Return the cursor of a client that is at this position."""
        return cls.at(position.horizon)._replace(settled=position.settled, last_id=position.last_id, history=position.history)

    @property
    def horizon(self) -> int:
        """Return the number from which on a client has to read again, so that it misses nothing."""
        return int(self.since.partition(":")[0])

    @property
    def latest(self) -> int:
        """Return a number above those of all transactions that the reader knows of."""
        return int(self.since.split(":")[1])

    @property
    def position(self) -> Position:
        """Return what to send to a client that has seen all that was read."""
        return Position(self.history, self.horizon)

    @property
    def more(self) -> bool:
        """Whether there is more to read at once."""
        return bool(self.upto)
