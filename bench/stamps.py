"""The times of the latency measurement: when each job was sent, and when its handler began."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from pathlib import Path

FILE = "BENCH_STAMPS"


@functools.cache
def _opened() -> int:
    return os.open(os.environ[FILE], os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def write(number: int) -> None:
    """Append the current time with a number; one system call, so that lines of several threads do not mix."""
    os.write(_opened(), f"{number} {time.time()!r}\n".encode())


def read(path: Path) -> dict[int, float]:
    """Return the times of a file by number."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {int(number): float(moment) for number, moment in (line.split() for line in lines)}


def pace(enqueue: Callable[[int], object], first: int, count: int, gap_seconds: float) -> dict[int, float]:
    """Enqueue `count` jobs at an even pace; return when each call began."""
    sent = {}
    due = time.monotonic()
    for number in range(first, first + count):
        due += gap_seconds
        time.sleep(max(due - time.monotonic(), 0.0))
        sent[number] = time.time()
        enqueue(number)
    return sent
