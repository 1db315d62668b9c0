"""Log records of failed runs: each handler gets one, although jobqueue and django.tasks both log a failed run.

`log_task_finished` of django.tasks logs a failed task at ERROR with the exception that is being handled. `jobqueue`
logs the same run with its duration and its worker. A filter on the logger of django.tasks passes its record only to
the handlers that jobqueue's record does not reach: by default, the handler that mails the admins.
"""

from __future__ import annotations

import contextvars
import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from django.utils.log import AdminEmailHandler

from jobqueue import compat
from jobqueue.core.masking import PLAIN, Mask
from jobqueue.core.texts import exception_summary
from jobqueue.exceptions import Interrupted, is_for_the_process

logger = logging.getLogger("jobqueue")
TRACEBACK: Any = vars(BaseException)["__traceback__"]
CONTEXT: Any = vars(BaseException)["__context__"]
_current: contextvars.ContextVar[RunError | None] = contextvars.ContextVar("jobqueue_ending", default=None)


class RunError(NamedTuple):
    """The exception with which a run ended, and its stored traceback; a canceled run has not failed."""

    error: BaseException
    traceback: str = ""  # its secrets are masked
    canceled: bool = False
    mask: Mask = PLAIN  # masks the secrets of the job


def while_handling(ending: RunError | None, call: Callable[[], Any]) -> None:
    """Call a function inside of an ``except`` block, so that `sys.exc_info` returns the exception; just call it without an ending."""
    if ending is None:
        call()
        return
    error = ending.error
    # As `raise` does, past attributes of the same names that the class of the error may define.
    trace, context = TRACEBACK.__get__(error), CONTEXT.__get__(error)
    token = _current.set(ending)
    try:
        raise error
    except BaseException:  # noqa: BLE001 - a task may have raised anything; it is not raised again
        TRACEBACK.__set__(error, trace)  # without this frame
        CONTEXT.__set__(error, context)
        call()
    finally:
        _current.reset(token)


def log(level: int, text: str, *args: Any, extra: Mapping[str, Any]) -> None:
    """Log with the exception that is being handled, if a run failed with one. A formatter shows its stored traceback, masked."""
    ending = _current.get()
    if ending is None or ending.canceled:
        logger.log(level, text, *args, extra=extra)
        return
    error = ending.error
    exc_info = (type(error), error, TRACEBACK.__get__(error))
    code = log.__code__
    record = logger.makeRecord(
        logger.name, level, code.co_filename, code.co_firstlineno, text, args, exc_info, func=code.co_name, extra=dict(extra)
    )
    record.exc_text = ending.traceback or None
    _give(logger, record)


def _give(receiver: logging.Logger | logging.Handler, record: logging.LogRecord) -> None:
    """Pass a record to a logger or handler, so that an exception whose text raises SystemExit does not stop later receivers."""
    try:
        receiver.handle(record)
    except BaseException as error:
        # `send_robust` isolates an Exception; the other two are meant for this thread.
        if isinstance(error, Exception | Interrupted) or is_for_the_process(error):
            raise
        logger.warning("A handler of the log raised %s on the exception of a failed run", exception_summary(error))


def mask_of(error: BaseException) -> Mask:
    """Return the mask for the text of an exception: for the exception of a failed run, that of its job."""
    ending = _current.get()
    return PLAIN if ending is None or ending.error is not error else ending.mask


def reaches_others() -> bool:
    """Return whether the record of django.tasks about a failed run reaches a handler that jobqueue's record does not reach."""
    if not logger.isEnabledFor(logging.ERROR):
        return True
    own_handlers, django_handlers = _handlers(logger), _handlers(logging.getLogger(compat.LOGGER_NAME))
    return any(all(handler is not own for own in own_handlers) for handler in django_handlers)


class OncePerHandler(logging.Filter):
    """A filter on the logger of django.tasks that withholds its record of a failed run from handlers that have got jobqueue's."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the logger is to handle the record itself."""
        ending = _current.get()
        if ending is None or record.levelno < logging.ERROR:
            return True
        if ending.canceled:  # a cancel is not a failure, and jobqueue logs it at INFO
            return False
        record.exc_text = ending.traceback or None
        if not logger.isEnabledFor(logging.ERROR):
            return True
        own_handlers = _handlers(logger)
        for handler in _handlers(logging.getLogger(record.name)):
            if record.levelno >= handler.level and not any(_is_same(handler, own) for own in own_handlers):
                _give(handler, record)
        return False


def _handlers(start: logging.Logger | None) -> list[logging.Handler]:
    """Return the handlers that a logger's records reach."""
    handlers = []
    while start is not None:
        handlers += start.handlers
        start = start.parent if start.propagate else None
    return handlers


def _is_same(first: logging.Handler, second: logging.Handler) -> bool:
    """Return whether two handlers write to the same place; in a worker, a wrapper with the attribute `target` precedes each."""
    first, second = getattr(first, "target", first), getattr(second, "target", second)
    if isinstance(first, AdminEmailHandler) and isinstance(second, AdminEmailHandler):
        return True
    stream = getattr(first, "stream", None)
    return first is second or (stream is not None and stream is getattr(second, "stream", None))


def connect() -> None:
    """Install the filter once."""
    tasks_logger = logging.getLogger(compat.LOGGER_NAME)
    if not any(isinstance(installed, OncePerHandler) for installed in tasks_logger.filters):
        tasks_logger.addFilter(OncePerHandler())
