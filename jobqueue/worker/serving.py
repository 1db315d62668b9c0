"""One worker process from its settings to its exit status: in the process of ``runworkers``, or in one that it has started."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable

from django.core.management.base import CommandError
from django.db.utils import Error

from jobqueue import conf, db
from jobqueue.db import hygiene
from jobqueue.duties import registry as duties
from jobqueue.models import Job
from jobqueue.tasks import registry as tasks
from jobqueue.worker.handlers import end_at_once, on_signals
from jobqueue.worker.logs import set_up_log
from jobqueue.worker.parent import Parent
from jobqueue.worker.recycling import Recycling
from jobqueue.worker.spawn import Options
from jobqueue.worker.supervisor import Supervisor

EXIT_SECONDS = 2.0


def run_child(options: Options, number: int, parent: Parent) -> None:
    """Run the worker of a process that was started for it, and end the process."""
    on_signals(end_at_once)
    settings = conf.current().with_overrides(**options.overrides)
    set_up_log(options.verbosity, number)
    check_tables()
    supervisor = Supervisor(
        settings, once=options.once, parent=parent, recycling=Recycling(options.max_jobs_per_process, options.max_rss_mb)
    )
    status = run(supervisor, options)
    exit_anyway(status)
    sys.exit(status)


def run_alone(settings: conf.Settings, options: Options, greet: Callable[[str], None]) -> int:
    """Run a worker that no other process watches; `greet` gets its description. Return the exit status."""
    supervisor = Supervisor(settings, once=options.once)
    greet(supervisor.identity.description)
    return run(supervisor, options)


def run(supervisor: Supervisor, options: Options) -> int:
    """Run a worker until its end; return the exit status. End the process if a thread of a task would keep it from ending."""
    on_signals(supervisor.stop)
    if options.strict:
        tasks.discover(strict=True)
        duties.discover(strict=True)
    clean = supervisor.run()
    status = 1 if not clean or (options.fail_on_error and supervisor.errors) else 0
    if not clean:
        # A thread that does not stop would hold up the interpreter's own end.
        logging.shutdown()
        sys.stdout.flush()
        os._exit(status)
    return status


def exit_anyway(status: int) -> None:
    """End the process soon though a thread of a task holds up the interpreter's own end (``asyncio.to_thread`` makes such threads)."""
    timer = threading.Timer(EXIT_SECONDS, os._exit, [status])
    timer.daemon = True
    timer.start()


def check_tables() -> None:
    """Raise CommandError if the tables are missing or cannot be read; log it if the database cannot be reached."""
    try:
        Job.objects.current.order_by().first()  # reads every column
    except Error as error:
        if db.is_missing_table(error):
            raise CommandError(db.missing_tables(Job.objects.database.alias)) from error
        if not db.is_connection_error(error):
            reason = str(error).strip()
            raise CommandError(f"The tables of jobqueue cannot be read: {reason}. See that this user may read and write them.") from error
        logging.getLogger("jobqueue").warning("The database cannot be reached yet: %s", str(error).strip())
    finally:
        hygiene.close_all()
