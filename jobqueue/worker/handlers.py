"""The signal handlers of worker processes and of the process that starts them."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
from collections.abc import Callable

NUMBERS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def on_signals(stop: Callable[[], None]) -> None:
    """Call `stop` for each SIGTERM, SIGINT and SIGHUP."""
    # SIGHUP means that the terminal is gone, and an orderly end is right, unless the signal is ignored, such as by nohup.
    hang_up = (signal.SIGHUP,) if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN else ()
    for number in (signal.SIGTERM, signal.SIGINT, *hang_up):
        signal.signal(number, lambda *_: stop())


def quit_with_dump(first: Callable[[], None] | None = None) -> None:
    """End the process at once on SIGQUIT, with the stacks of all threads on the standard error; call `first` before the end.

    C code writes the stacks, even if a thread holds the GIL. It reads them while other threads run, so it can crash in
    the middle of the dump. The process then ends with SIGSEGV, as quickly.
    """

    def end(*_: object) -> None:
        if first is not None:
            first()
        os._exit(128 + signal.SIGQUIT)

    # Process 1 has no default handler.
    signal.signal(signal.SIGQUIT, end if first is not None or os.getpid() == 1 else signal.SIG_DFL)
    with contextlib.suppress(OSError, ValueError, AttributeError, RuntimeError):  # the standard error is no file
        faulthandler.register(signal.SIGQUIT, all_threads=True, chain=True)


def end_at_once() -> None:
    """End the process with status 0: before a worker runs, nothing is lost, and no database that does not respond can delay the end."""
    sys.exit(0)
