"""The main function of a worker process that a parent process has started (see `jobqueue.worker.fleet.spawn`)."""

from __future__ import annotations

import sys

from jobqueue.worker.fleet import spawn
from jobqueue.worker.fleet.parent import Parent
from jobqueue.worker.wakeups import Wakeups


def main() -> None:
    """Report to the parent, load the project, run one worker, and exit with its status."""
    try:
        order, number, descriptor, board = spawn.receive()
    except ValueError as error:
        sys.exit(str(error))
    parent = Parent(descriptor, board, Wakeups())
    parent.reports()
    sys.argv[:] = order.argv  # settings may read the command line
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management.base import CommandError
    from django.utils.module_loading import import_string

    try:
        import_string(order.setup)()
        from jobqueue.worker.process import serving

        serving.run_child(order.options, number, parent)
    except (CommandError, ImproperlyConfigured) as error:
        sys.exit(f"{type(error).__name__}: {error}")
