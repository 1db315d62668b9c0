"""The tasks that are measured."""

import time

from bench import stamps
from jobqueue import task


@task
def noop(number: int) -> None:
    """Do nothing."""


@task
def stamp(number: int) -> None:
    """Write down when the handler began."""
    stamps.write(number)


@task
def rest(seconds: float) -> None:
    """Keep a slot for so long."""
    time.sleep(seconds)
