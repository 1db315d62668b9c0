"""Install signal handlers before any other import.

Process 1 of a container has no default handlers, and would ignore an early SIGTERM.
"""

import os
import signal
import sys


def end_on_signals() -> None:
    """End the process immediately on SIGTERM and SIGINT: before a worker has started, there is nothing to shut down."""
    for number in (signal.SIGTERM, signal.SIGINT):
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, lambda *_: os._exit(0))


def is_first_worker() -> bool:
    """Return whether this is process 1 and was started for ``runworkers``."""
    return os.getpid() == 1 and "runworkers" in sys.argv
