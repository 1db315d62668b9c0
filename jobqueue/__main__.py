"""Django's command line with early signal handlers, for ``python -m jobqueue runworkers``."""

from jobqueue.core import early

if early.is_first_worker():
    early.end_on_signals()

import sys

from django.core.management import execute_from_command_line

execute_from_command_line(sys.argv)
