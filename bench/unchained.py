"""A worker process without hand-over: the next job of a target is claimed like any other. The arguments are those of ``runworkers``."""

from __future__ import annotations

import sys

import django
from django.core.management import execute_from_command_line


def main() -> None:
    """Run the worker; what it is told to take over jobs with goes nowhere."""
    django.setup()
    from jobqueue.worker.reporting.finisher import Finisher

    Finisher.chain = lambda *_: None  # type: ignore[method-assign]
    execute_from_command_line(["django", "runworkers", *sys.argv[1:]])


if __name__ == "__main__":
    main()
