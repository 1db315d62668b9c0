"""The signal handlers of worker processes and of the process that starts them."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable

NUMBERS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def on_signals(stop: Callable[[], None]) -> None:
    """Call `stop` for each SIGTERM, SIGINT and SIGHUP."""
    # The terminal is gone: nothing is lost by an end in order, unless somebody (nohup) has it ignored.
    hang_up = (signal.SIGHUP,) if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN else ()
    for number in (signal.SIGTERM, signal.SIGINT, *hang_up):
        signal.signal(number, lambda *_: stop())


def end_at_once() -> None:
    """End the process: until there is something to end in order, nothing is lost, and a database that does not answer keeps nobody."""
    sys.exit(0)
