"""The position of a reader in the log of events, for the reader itself and as text for its clients."""

from __future__ import annotations

import re
from typing import NamedTuple, Self

_TEXT = re.compile(r"([0-9a-f]{1,16})-(\d{1,19})(?:-(\d{1,19})-(\d{1,19}))?", re.ASCII)


class Position(NamedTuple):
    """The position of a client in the log of events, as it is sent to the client.

    The client has seen all events of transactions before `horizon`, and of those before `settled` the events up to
    `last_id`. `history` identifies the database and its past: another one, such as one restored from a dump, numbers
    transactions differently.
    """

    history: str
    horizon: int
    settled: int = 0
    last_id: int = 0

    @classmethod
    def of(cls, text: str) -> Self | None:
        """Return the position in a text, or None if the text has none."""
        match = _TEXT.fullmatch(text)
        if match is None:
            return None
        numbers = [int(group or 0) for group in match.groups()[1:]]
        return cls(match[1], *numbers) if max(numbers) < 2**63 else None

    def __str__(self) -> str:
        return f"{self.history}-{self.horizon}-{self.settled}-{self.last_id}" if self.settled else f"{self.history}-{self.horizon}"


class Cursor(NamedTuple):
    """The position of a reader.

    `since` is a snapshot: the reader has read all that it shows. If one read could not return all rows, `upto` is the
    snapshot of this read, and `after_id` is the last row of it that was returned. Of transactions before `settled`,
    the rows up to `last_id` were read, too.
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
        """Return the number of the first transaction that a client must read again, so that it misses nothing."""
        return int(self.since.partition(":")[0])

    @property
    def latest(self) -> int:
        """Return a number above those of all transactions that the reader knows of."""
        return int(self.since.split(":")[1])

    @property
    def position(self) -> Position:
        """Return the position of a client that has seen all that was read."""
        return Position(self.history, self.horizon)

    @property
    def more(self) -> bool:
        """Whether there are more rows to read immediately."""
        return bool(self.upto)
