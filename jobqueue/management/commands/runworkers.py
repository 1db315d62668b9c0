"""``manage.py runworkers``: parse the options, say what is served, run a supervisor."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
import threading
from argparse import SUPPRESS, ArgumentParser
from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, OutputWrapper
from django.db.utils import Error
from django.utils import timezone

from jobqueue import conf, db
from jobqueue.db import hygiene
from jobqueue.exceptions import JobQueueError
from jobqueue.models import Job
from jobqueue.worker.child import times
from jobqueue.worker.maintenance import recover_dead
from jobqueue.worker.parent import Parent
from jobqueue.worker.processes import Processes
from jobqueue.worker.recycling import Recycling
from jobqueue.worker.supervisor import Supervisor

OPTIONS = {
    "min_workers": (int, "slots that are always there"),
    "max_workers": (int, "slots at the most"),
    "poll_seconds": (float, "rest between two looks for work where no notification comes"),
    "lease_seconds": (float, "how long a job stays ours without a heartbeat"),
    "heartbeat_seconds": (float, "rest between two renewals of the leases"),
    "scale_seconds": (float, "rest between two decisions on the number of slots"),
    "shutdown_grace_period_seconds": (float, "time for running jobs to finish after SIGTERM"),
    "max_running": (int, "jobs that may run at once, over all workers"),
    "interrupt_grace_seconds": (float, "time for interrupted jobs to stop after that"),
}
EXIT_SECONDS = 2.0
RECOVER_SECONDS = 5.0
MOST_PROCESSES = 1000


class Command(BaseCommand):
    """Run jobs until told to stop."""

    help = "Run jobs. SIGTERM or Ctrl-C: finish what runs, then end; a second time: interrupt it and end."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add an option for each setting that may differ per process."""
        parser.add_argument("--queues", help="names, separated by commas (default: all queues)")
        parser.add_argument("--processes", type=int, help="worker processes, watched over by one more (default: one, by itself)")
        parser.add_argument("--max-jobs-per-process", type=int, help="with --processes: replace a process after so many jobs")
        parser.add_argument("--max-rss-mb", type=int, help="with --processes: replace a process that holds so much memory")
        parser.add_argument("--child", type=_child, help=SUPPRESS)
        parser.add_argument(
            "--once", action="store_true", help="end when nothing runs, is queued or waits for a retry; paused queues are not waited for"
        )
        parser.add_argument(
            "--fail-on-error", action="store_true", help="with --once: end with 1 when a job ended in ERROR; with --processes, any worker's"
        )
        for name, (kind, text) in OPTIONS.items():
            parser.add_argument(f"--{name.replace('_', '-')}", type=kind, help=text)

    def handle(self, *args: Any, **options: Any) -> None:
        """Run one worker process, or several and what watches over them, and end with their status."""
        if _have_streams():
            self.stdout = OutputWrapper(sys.stdout)
        # Until there is something to end in order: nothing is lost, and a database that does not answer keeps nobody.
        _on_signals(_end_at_once)
        parent = Parent(options["child"][1]) if options["child"] else None
        settings = _settings(options)
        _check_processes(options)
        _set_up_log(options["verbosity"], options["child"])
        _check_tables()
        if options["processes"] is not None and parent is None:
            self._run_processes(settings, options)
        else:
            self._run_worker(settings, options, parent)

    def _run_worker(self, settings: conf.Settings, options: dict[str, Any], parent: Parent | None) -> None:
        recycling = Recycling(options["max_jobs_per_process"], options["max_rss_mb"])
        supervisor = Supervisor(settings, once=options["once"], parent=parent, recycling=recycling)
        _on_signals(supervisor.stop)
        if parent is None:
            self._greet(_greeting(supervisor.identity.description, settings), options)
        clean = supervisor.run()
        status = 1 if not clean or (options["fail_on_error"] and supervisor.errors) else 0
        if not clean:
            # A thread that does not stop would hold up the interpreter's own end.
            logging.shutdown()
            sys.stdout.flush()
            os._exit(status)
        if getattr(self, "_called_from_command_line", False):
            _exit_anyway(status)
        if status:
            sys.exit(status)

    def _run_processes(self, settings: conf.Settings, options: dict[str, Any]) -> None:
        if not getattr(self, "_called_from_command_line", False):
            raise CommandError("--processes starts the command line anew, and there is none here: run 'manage.py runworkers' in a shell.")
        number, once = options["processes"], options["once"]
        processes = Processes(number, [sys.executable, *sys.orig_argv[1:]], times(settings), once=once)
        _on_signals(processes.stop)
        self._greet(
            _greeting(f"{number} worker process{'es' if number > 1 else ''} under pid {os.getpid()} on {socket.gethostname()}", settings),
            options,
        )
        began = _clock() if options["fail_on_error"] else None
        clean, dead = processes.run()
        if dead:
            _recover(dead)
        if not clean or (began is not None and _failed_since(began, settings.queues)):
            sys.exit(1)

    def _greet(self, lines: list[str], options: dict[str, Any]) -> None:
        if options["verbosity"] < 1:
            return
        try:
            for line in lines:
                self.stdout.write(line)
            self.stdout.flush()
        except OSError:  # whoever was to read it has gone; the interpreter would stumble over that at its end once more
            with contextlib.suppress(OSError, ValueError), open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _child(text: str) -> tuple[int, int]:
    number, _, descriptor = text.partition(":")
    return int(number), int(descriptor)


def _check_processes(options: dict[str, Any]) -> None:
    if options["fail_on_error"] and not options["once"]:
        raise CommandError("--fail-on-error needs --once: without it, workers do not end when there is nothing left to do.")
    for name in ("processes", "max_jobs_per_process", "max_rss_mb"):
        option, value = f"--{name.replace('_', '-')}", options[name]
        if value is not None and value < 1:
            raise CommandError(f"{option} is {value}; it must be a whole number from 1 on.")
        if value is not None and options["processes"] is None:
            raise CommandError(f"{option} needs --processes: somebody must start a new process in place of the old one. Add --processes 1.")
    if (options["processes"] or 0) > MOST_PROCESSES:
        raise CommandError(f"--processes is {options['processes']}; it must be at most {MOST_PROCESSES}.")


def _have_streams() -> bool:
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


def _end_at_once() -> None:
    sys.exit(0)


def _on_signals(stop: Callable[[], None]) -> None:
    # The terminal is gone: nothing is lost by an end in order, unless somebody (nohup) has it ignored.
    hang_up = (signal.SIGHUP,) if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN else ()
    for number in (signal.SIGTERM, signal.SIGINT, *hang_up):
        signal.signal(number, lambda *_: stop())


def _recover(dead: list[str]) -> None:
    """Recover the jobs of workers that died when no other was left; in a thread, since the database may not answer."""
    thread = threading.Thread(target=recover_dead, args=(dead,), daemon=True)
    thread.start()
    thread.join(RECOVER_SECONDS)


def _clock() -> datetime:
    """Return the database's time, or where it does not answer yet, this machine's."""
    try:
        return Job.objects.database.clock()
    except Error:
        return timezone.now()
    finally:
        hygiene.close_all()  # the parent of workers holds no connection


def _failed_since(began: datetime, queues: tuple[str, ...]) -> bool:
    """Return whether jobs have ended in ERROR since then: a worker that was replaced, or died, could tell nobody.

    Not to know it is a failure, too.
    """
    failed = Job.objects.current.filter(status=Job.Status.ERROR, finished_at__gte=began)
    try:
        return (failed.filter(queue__in=queues) if queues else failed).exists()
    except Error as error:
        logging.getLogger("jobqueue").error("Whether jobs have ended in ERROR is not known: %s", str(error).strip())
        return True


def _settings(options: dict[str, Any]) -> conf.Settings:
    given = {name: options[name] for name in OPTIONS if options[name] is not None}
    if options["queues"] is not None:
        given["queues"] = tuple(name.strip() for name in options["queues"].split(",") if name.strip())
        if options["queues"] and not given["queues"]:
            raise CommandError(f"--queues is {options['queues']!r}; it must name queues, separated by commas. Leave it out to serve all.")
    try:
        current = conf.current()
        # One of the two alone moves the other along, so that --max-workers 1 needs no second option.
        if "max_workers" in given and "min_workers" not in given:
            given["min_workers"] = min(current.min_workers, max(given["max_workers"], 1))
        elif "min_workers" in given and "max_workers" not in given:
            given["max_workers"] = max(current.max_workers, given["min_workers"])
        return current.with_overrides(**given)
    except (ImproperlyConfigured, JobQueueError) as error:
        raise CommandError(str(error)) from error


def _exit_anyway(status: int) -> None:
    """End the process soon though a thread of a task holds up the interpreter's own end (``asyncio.to_thread`` makes such threads)."""
    timer = threading.Timer(EXIT_SECONDS, os._exit, [status])
    timer.daemon = True
    timer.start()


def _check_tables() -> None:
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


def _set_up_log(verbosity: int, child: tuple[int, int] | None) -> None:
    """Show one line per job, unless the project's own logging has other wishes or -v 0 asks for silence."""
    logger = logging.getLogger("jobqueue")
    if verbosity == 0:
        logger.setLevel(logging.WARNING)
    elif not logger.handlers and logger.level == logging.NOTSET and not logging.getLogger().handlers:
        handler = logging.StreamHandler()
        who = f"[{child[0]}] " if child else ""
        handler.setFormatter(logging.Formatter(f"%(asctime)s {who}%(levelname)s %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG if verbosity > 1 else logging.INFO)


def _greeting(who: str, settings: conf.Settings) -> list[str]:
    slots = (
        str(settings.max_workers) if settings.min_workers == settings.max_workers else f"{settings.min_workers} to {settings.max_workers}"
    )
    return [
        f"jobqueue {who}",
        f"  queues    {', '.join(settings.queues) or 'all'}",
        f"  slots     {slots}",
        f"  database  {Job.objects.database.description}",
        f"  lease     {settings.lease_seconds:g} s, renewed every {settings.heartbeat_seconds:g} s",
        f"  stop      Ctrl-C or SIGTERM: running jobs get {settings.shutdown_grace_period_seconds:g} s; again: interrupt them",
    ]
