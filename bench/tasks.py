"""The tasks that are measured."""

from bench import stamps
from jobqueue import task


@task
def noop(number: int) -> None:
    """Do nothing."""


@task
def stamp(number: int) -> None:
    """Write down when the handler began."""
    stamps.write(number)
