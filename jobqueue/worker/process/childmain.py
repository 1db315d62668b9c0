"""The main function of a worker process that another one has started (see `spawn`)."""

from __future__ import annotations

import sys

from jobqueue.worker.fleet import spawn
from jobqueue.worker.fleet.parent import Parent


def main() -> None:
    """Report to the parent, load the project, and run one worker; end with its status."""
    try:
        order, number, descriptor, board = spawn.receive()
    except ValueError as error:
        sys.exit(str(error))
    parent = Parent(descriptor, board)
    parent.reports()
    sys.argv[:] = order.argv  # settings may ask for the command
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management.base import CommandError
    from django.utils.module_loading import import_string

    try:
        import_string(order.setup)()
        from jobqueue.worker.process import serving

        serving.run_child(order.options, number, parent)
    except (CommandError, ImproperlyConfigured) as error:
        sys.exit(f"{type(error).__name__}: {error}")
