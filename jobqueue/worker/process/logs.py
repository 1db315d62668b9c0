"""The output of a worker process: its standard streams, and the format of log records.

Texts of jobs are not trusted. Characters that are not printable are escaped, line breaks included, so that no text moves the cursor of a
terminal or imitates a log record. Only the breaks between the lines of a traceback stay. Secrets are masked.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import traceback
from types import TracebackType

from jobqueue import failure_log
from jobqueue.core.masking import Mask, mask_text
from jobqueue.core.texts import error_text, printable, shorten

# To mask a text takes about a second for each megabyte, and its thread keeps other threads from running for a part of that.
MAX_PART_BYTES = 32_000
MAX_PARTS = 400
PLACE = re.compile(r'[\s|+-]*File "')


def open_closed_streams() -> bool:
    """Open the null device for each standard stream that is closed; return whether the standard output was closed.

    Else a socket that the system opens under the descriptor of a closed stream would get the output.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the system assigns the lowest free descriptor, which is this one
    closed = [name for name in ("stdout", "stderr") if getattr(sys, name) is None]
    for name in closed:
        setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - stays open until the process ends
    return "stdout" in closed


def set_up_log(verbosity: int, number: int | None = None) -> None:
    """Log one line per job, unless the project configures logging or the verbosity is 0; `number` is that of the worker process."""
    logger = logging.getLogger("jobqueue")
    if verbosity == 0:
        logger.setLevel(logging.WARNING)
    elif not logger.handlers and logger.level == logging.NOTSET and not logging.getLogger().handlers:
        handler = logging.StreamHandler()
        who = f"[{number}] " if number else ""
        handler.setFormatter(Formatter(f"%(asctime)s {who}%(levelname)s %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG if verbosity > 1 else logging.INFO)


class Formatter(logging.Formatter):
    """A formatter of one line per record, followed by the traceback of its exception."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a record."""
        record.message = printable(mask_text(record.getMessage()))
        if self.usesTime():
            record.asctime = self.formatTime(record, self.datefmt)
        lines = [self.formatMessage(record)]
        if record.exc_info and record.exc_info[0] is not None:
            lines.append(self.formatException(record.exc_info))
        lines += [printable(line) for line in mask_text(record.stack_info or "").splitlines()]
        return "\n".join(lines)

    def formatException(  # noqa: N802 - the name is logging's
        self, ei: tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
    ) -> str:
        """Return the traceback of an exception; the ends of a long chain, and the beginning of a long text."""
        if ei[1] is None:
            return ""
        hide = failure_log.mask_of(ei[1])
        try:
            shown = traceback.TracebackException(*ei, compact=True)
            _make_notes_printable(shown, hide)
            parts = list(shown.format())
        except BaseException:  # noqa: BLE001 - the class of an exception may raise anything; the record must not be lost
            return "\n".join(map(printable, error_text(ei[1], hide=hide).splitlines()))
        if len(parts) > MAX_PARTS:
            half = MAX_PARTS // 2
            parts[half:-half] = [f"[{len(parts) - MAX_PARTS:,} parts left out]\n"]
        return hide("\n".join(_line(part, hide) for part in parts))


def _line(part: str, hide: Mask) -> str:
    """Return a part of a traceback, escaped; only a part that names a file keeps its line breaks, before its source lines."""
    if PLACE.match(part):
        return "\n".join(map(printable, part.rstrip("\n").split("\n")))
    text = shorten(part.strip("\n"), MAX_PART_BYTES, hide)  # before line breaks and the like are escaped
    return "\n" * (len(part) - len(part.lstrip("\n"))) + printable(text)


def _make_notes_printable(shown: traceback.TracebackException, hide: Mask) -> None:
    """Escape the notes of an exception and of all exceptions shown with it. Otherwise, each line of a note becomes a separate part."""
    waiting = [shown]
    while waiting:
        error = waiting.pop()
        notes = getattr(error, "__notes__", None)
        if isinstance(notes, list | tuple):
            error.__notes__ = [printable(shorten(str(note), MAX_PART_BYTES, hide)) for note in notes]
        waiting += [other for other in (error.__cause__, error.__context__, *(error.exceptions or ())) if other is not None]
