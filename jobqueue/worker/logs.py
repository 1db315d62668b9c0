"""What a worker process prints: its standard streams and its log."""

from __future__ import annotations

import logging
import os
import sys


def open_closed_streams() -> bool:
    """Put something in the place of standard streams that somebody has closed; return whether the output is one of them.

    Else a socket that takes the number would get what is printed.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number, which is this one
    closed = [name for name in ("stdout", "stderr") if getattr(sys, name) is None]
    for name in closed:
        setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - for as long as the process lives
    return "stdout" in closed


def set_up_log(verbosity: int, number: int | None = None) -> None:
    """Show one line per job, unless the project has its own logging or -v 0 asks for silence; `number` is that of a worker process."""
    logger = logging.getLogger("jobqueue")
    if verbosity == 0:
        logger.setLevel(logging.WARNING)
    elif not logger.handlers and logger.level == logging.NOTSET and not logging.getLogger().handlers:
        handler = logging.StreamHandler()
        who = f"[{number}] " if number else ""
        handler.setFormatter(logging.Formatter(f"%(asctime)s {who}%(levelname)s %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG if verbosity > 1 else logging.INFO)
