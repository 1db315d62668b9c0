"""One worker from its settings to its exit status: in the process of ``runworkers``, or in a process that it has started."""

from __future__ import annotations

import contextlib
import logging
import socket
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

from django.core.management.base import CommandError
from django.db.utils import Error

from jobqueue import conf, db
from jobqueue.db import hygiene
from jobqueue.declared import registry as tasks
from jobqueue.duties import registry as duties
from jobqueue.models import Job
from jobqueue.worker.fleet.parent import Parent
from jobqueue.worker.fleet.spawn import Options
from jobqueue.worker.handlers import end_at_once, on_signals, quit_with_dump
from jobqueue.worker.probes.serving import probed
from jobqueue.worker.process.ending import exit_anyway, exit_process, flush
from jobqueue.worker.process.log_thread import LogThread
from jobqueue.worker.process.logs import set_up_log
from jobqueue.worker.process.supervisor import Supervisor


class End(NamedTuple):
    """The end of a worker: its exit status, and whether all of its threads stopped."""

    status: int
    clean: bool


def run_child(options: Options, number: int, parent: Parent) -> None:
    """Run the worker of a child process, and end the process."""
    on_signals(end_at_once)
    quit_with_dump()
    settings = conf.current().with_overrides(**options.overrides)
    set_up_log(options.verbosity, number)
    with ending(LogThread()) as log:
        check_tables()
        limits = {"max_jobs": options.max_jobs_per_process, "max_rss_mb": options.max_rss_mb}
        end = run(Supervisor(settings, once=options.once, parent=parent, **limits), options)
    finish(end, log)
    sys.exit(end.status)


def run_alone(settings: conf.Settings, options: Options, greet: Callable[[str], None], listener: socket.socket | None) -> End:
    """Run a worker without a parent process, with probes at `listener`; `greet` is called with its description."""
    supervisor = Supervisor(settings, once=options.once)
    greet(supervisor.identity.description)
    with probed(listener, supervisor.probe_state, lambda: {"1": supervisor.probe_state().figures}):
        return run(supervisor, options)


def run(supervisor: Supervisor, options: Options) -> End:
    """Run a worker until it ends; return its status."""
    on_signals(supervisor.stop)
    if options.strict:
        tasks.discover(strict=True)
        duties.discover(strict=True)
    clean = supervisor.run()
    return End(1 if not clean or (options.fail_on_error and supervisor.errors) else 0, clean)


@contextlib.contextmanager
def ending(log: LogThread) -> Iterator[LogThread]:
    """Write the log in its thread; if an exception ends the process while the log is blocked, end the process without the log."""
    try:
        with log:
            yield log
    except BaseException as error:
        if not log.is_written:
            exit_process(error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else 1)
        raise


def finish(end: End, log: LogThread, *, is_process: bool = True) -> None:
    """Prepare the end of the process, or end it at once if a thread or the log would block it.

    `is_process` says that the process runs nothing else.
    """
    if not end.clean or not log.is_written:
        exit_process(end.status)
    if is_process:
        exit_anyway(end.status)
        flush()


def check_tables() -> None:
    """Raise CommandError if the tables are missing or cannot be read; log a warning if the database cannot be reached."""
    try:
        Job.objects.current.order_by().first()  # reads every column
    except Error as error:
        if db.is_missing_table(error):
            raise CommandError(db.missing_tables(Job.objects.database.alias)) from error
        if not db.is_connection_error(error):
            reason = str(error).strip()
            raise CommandError(f"The tables of jobqueue cannot be read: {reason}. Check that this user may read and write them.") from error
        logging.getLogger("jobqueue").warning("The database cannot be reached yet: %s", str(error).strip())
    finally:
        hygiene.close_all()
