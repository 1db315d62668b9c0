"""The tasks that are measured."""

import asyncio
import time

from bench import stamps
from jobqueue import Retry, task

_failed: set[int] = set()


@task
def noop(number: int) -> None:
    """Do nothing."""


@task
def stamp(number: int) -> None:
    """Record when the handler began."""
    stamps.write(number)


@task
def rest(seconds: float) -> None:
    """Keep a slot for this number of seconds."""
    time.sleep(seconds)


@task
def stamp_and_rest(number: int) -> None:
    """Record when the handler began, and keep a slot for 50 ms."""
    stamps.write(number)
    time.sleep(0.05)


@task(max_attempts=2)
def fail_once(number: int) -> None:
    """Request a second attempt without delay; the first is recorded in memory, because there is only one process."""
    if number not in _failed:
        _failed.add(number)
        raise Retry(delay=0)


@task
async def nap(number: int) -> None:
    """Sleep for 10 ms as a coroutine."""
    await asyncio.sleep(0.01)
