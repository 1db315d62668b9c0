"""A worker process without hand-over: the next job of a target is claimed like any other. It takes the arguments of ``runworkers``."""

from __future__ import annotations

import sys

import django
from django.core.management import execute_from_command_line


def main() -> None:
    """Run the worker; the part of the finisher that takes over jobs is replaced."""
    django.setup()
    from jobqueue.worker.reporting.finisher import Finisher

    Finisher._hand_over = lambda *_: None  # type: ignore[method-assign]
    execute_from_command_line(["django", "runworkers", *sys.argv[1:]])


if __name__ == "__main__":
    main()
