"""Keep the records that tasks log.

A record factory keeps them, so that no handler has to be installed: a handler would change which other handlers get the records. The
factory gets each record of each logger of the process, at its creation, in the thread that logs. The texts of short records are masked only
when they are written, since most lines of a task that logs very much never are.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from jobqueue import conf
from jobqueue.core import texts
from jobqueue.exceptions import Interrupted, TimeLimitExceeded
from jobqueue.logs import current_run
from jobqueue.worker.forked import is_child
from jobqueue.worker.running.run import Run
from jobqueue.worker.running.run_log import RunLog

MAX_LINE_BYTES = 8_000
SHORT = MAX_LINE_BYTES // 4  # characters, at most four bytes each
MAX_LOGGER = 200
MAX_LEVEL = 2**15 - 1
# The loggers of Django Tasks, and of its backport, which log each state of each run. The history of the job has them.
LOGGERS_OF_STATES = frozenset({"django.tasks", "django_tasks"})
LEVELS = {"warning": logging.WARNING, "info": logging.INFO}


def keep_records() -> None:
    """Keep the records that tasks log in this process from now on; call it again after another record factory was set."""
    factory = logging.getLogRecordFactory()
    if not isinstance(factory, _KeepingFactory):
        logging.setLogRecordFactory(_KeepingFactory(factory))


class _KeepingFactory:
    """A record factory that also keeps the record if a task of this worker logs it."""

    def __init__(self, factory: Callable[..., logging.LogRecord]) -> None:
        self._make = factory

    def __call__(self, *args: Any, **kwargs: Any) -> logging.LogRecord:
        record = self._make(*args, **kwargs)
        if (run := current_run.get()) is not None and isinstance(run, Run):
            log = run.log
            least = LEVELS.get(conf.current().job_log) if log is None else log.least  # read once for each run: tasks can log very much
            if (
                least is not None
                and isinstance(record.levelno, int)  # `makeLogRecord` makes records without a level
                and record.levelno >= least
                and record.name not in LOGGERS_OF_STATES
                and not run.closed
                and not is_child()  # it has no thread that writes the lines
            ):
                _keep(run, log or _new_log(run, least), record)
        return record


def _keep(run: Run, log: RunLog, record: logging.LogRecord) -> None:
    thread = threading.get_ident()
    if thread in log.keepers:
        return
    try:
        log.keepers.add(thread)
        text = record.getMessage()
        if type(text) is not str or len(text) > SHORT or record.exc_info or record.stack_info:
            text = _long_text(run, record, text)
    except BaseException as error:  # the texts of arguments may raise anything, which must not fail the task
        if isinstance(error, Interrupted | TimeLimitExceeded):  # thrown into this thread
            raise
        text = f"{texts.safe_repr(record.msg, SHORT)} (it could not be shown: {texts.exception_path(error)})"
    finally:
        log.keepers.discard(thread)
    log.add(min(record.levelno, MAX_LEVEL), str(record.name)[:MAX_LOGGER], text)


def _new_log(run: Run, least: int) -> RunLog:
    with run.lock:  # several threads of the task may log
        run.log = run.log or RunLog(least)
    return run.log


def _long_text(run: Run, record: logging.LogRecord, message: str) -> str:
    """Return the message of a record with its traceback: masked, and cut to `MAX_LINE_BYTES`."""
    text = texts.clean(texts.shorten(str.__str__(message), MAX_LINE_BYTES, run.mask))
    if isinstance(record.exc_info, tuple) and (raised := record.exc_info[1]) is not None:
        text = f"{text}\n{texts.error_text(raised, MAX_LINE_BYTES, hide=run.mask)}"
    if record.stack_info:
        text = f"{text}\n{texts.clean(texts.shorten(str(record.stack_info), MAX_LINE_BYTES, run.mask))}"
    return texts.shorten(text, MAX_LINE_BYTES)
