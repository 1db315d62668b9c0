"""Processes as the kernel shows them; only for systems with ``/proc``."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Process(NamedTuple):
    """One process, as it was seen."""

    pid: int
    state: str
    parent: int
    group: int


def processes() -> Iterator[Process]:
    """Walk over the processes that there are."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, parent, group, *_ = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has just ended
                continue
            yield Process(int(entry.name), state, int(parent), int(group))
