"""The command ``manage.py runworkers``, which parses the options and runs one worker or a fleet of worker processes."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import sys
import threading
from argparse import ArgumentParser
from collections.abc import Callable
from dataclasses import fields
from datetime import datetime
from functools import partial
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, OutputWrapper
from django.db.utils import Error

from jobqueue import clock, conf
from jobqueue.core import queue_rules
from jobqueue.core.texts import safe_repr
from jobqueue.db import hygiene, overview
from jobqueue.exceptions import JobQueueError
from jobqueue.models import Job
from jobqueue.worker.fleet import spawn
from jobqueue.worker.fleet.child import times
from jobqueue.worker.fleet.processes import Processes
from jobqueue.worker.fleet.spawn import Options
from jobqueue.worker.fleet.state import fleet_figures, fleet_state
from jobqueue.worker.handlers import end_at_once, on_signals, quit_with_dump
from jobqueue.worker.probes.server import listen, url_of
from jobqueue.worker.probes.serving import probed
from jobqueue.worker.process.ending import exit_anyway
from jobqueue.worker.process.log_thread import LogThread
from jobqueue.worker.process.logs import open_closed_streams, set_up_log
from jobqueue.worker.process.maintenance import recover_dead
from jobqueue.worker.process.serving import End, check_tables, ending, finish, run_alone
from jobqueue.worker.process.state import LATE_HEARTBEATS

OPTIONS = {
    "min_workers": (int, "the minimum number of slots"),
    "max_workers": (int, "the maximum number of slots"),
    "poll_seconds": (float, "seconds between two polls for work if no notification arrives"),
    "lease_seconds": (float, "seconds for which a worker keeps a job without a heartbeat"),
    "heartbeat_seconds": (float, "seconds between two renewals of the leases"),
    "scale_seconds": (float, "seconds between two decisions on the number of slots"),
    "shutdown_grace_period_seconds": (float, "seconds for running jobs to finish after SIGTERM"),
    "max_running": (int, "how many jobs may run at once, over all workers"),
    "interrupt_grace_seconds": (float, "seconds for interrupted jobs to stop after that"),
}
RECOVER_SECONDS = 5.0
MAX_PROCESSES = 1000


class Command(BaseCommand):
    """The command ``runworkers``, which runs jobs until it is asked to stop."""

    help = "Run jobs. SIGTERM or Ctrl-C: finish the running jobs, then exit; a second time: interrupt them and exit."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the options of processes, and an option for each setting that may differ between workers."""
        parser.add_argument("--queues", help="names, prefixes (mail-*) and exclusions (!mail-bulk), with commas between (default: all)")
        parser.add_argument(
            "--processes",
            type=int,
            help="the number of worker processes, started and watched by a parent process (default: one worker without a parent)",
        )
        parser.add_argument("--max-jobs-per-process", type=int, help="with --processes: replace a process after this number of jobs")
        parser.add_argument("--max-rss-mb", type=int, help="with --processes: replace a process that uses this much memory")
        parser.add_argument(
            "--once", action="store_true", help="exit when no job runs, is queued or waits for a retry; jobs of paused queues do not count"
        )
        parser.add_argument(
            "--fail-on-error",
            action="store_true",
            help="with --once: exit with 1 if a job of this worker, or of any of its processes, ended in ERROR",
        )
        parser.add_argument("--http", metavar="ADDRESS:PORT", help="serve the probes /livez, /readyz and /metrics there")
        parser.add_argument("--strict", action="store_true", help="exit if a module of tasks or duties cannot be imported")
        for name, (kind, text) in OPTIONS.items():
            parser.add_argument(f"--{name.replace('_', '-')}", type=kind, help=text)

    def handle(self, *args: Any, **options: Any) -> None:
        """Run one worker, or a parent process with several workers, and exit with their status."""
        if threading.current_thread() is not threading.main_thread():
            raise CommandError(
                "runworkers needs the main thread of its process, because only that thread receives signals. Run it in its own process."
            )
        if open_closed_streams():
            self.stdout = OutputWrapper(sys.stdout)
        on_signals(end_at_once)
        quit_with_dump()
        is_process = getattr(self, "_called_from_command_line", False)
        try:
            status = self._serve(options, is_process=is_process)
        except CommandError:
            if is_process:
                exit_anyway(1)  # if no process reads the output, Django blocks when it prints the error
            raise
        if status:
            sys.exit(status)

    def _serve(self, options: dict[str, Any], *, is_process: bool) -> int:
        overrides = _overrides(options)
        settings = _settings(overrides)
        _check_processes(options)
        listener = _listen(options["http"])
        set_up_log(options["verbosity"])
        given = Options(overrides, **{field.name: options[field.name] for field in fields(Options) if field.name != "overrides"})
        with ending(LogThread()) as log:
            check_tables()
            greet = partial(self._greet, log, options["verbosity"], settings, listener)
            number = options["processes"]
            if number is None:
                end = run_alone(settings, given, greet, listener)
            else:
                end = self._run_processes(number, settings, given, greet, listener)
        finish(end, log, is_process=is_process)
        return end.status

    def _run_processes(
        self, number: int, settings: conf.Settings, given: Options, greet: Callable[[str], None], listener: socket.socket | None
    ) -> End:
        module = conf.settings_module()
        if refusal := spawn.refusal(module):
            raise CommandError(refusal)
        processes = Processes(number, spawn.Order(module or "", settings.process_setup, given), times(settings), once=given.once)
        on_signals(processes.stop)
        quit_with_dump(processes.quit)
        greet(f"{number} worker process{'es' if number > 1 else ''} under pid {os.getpid()} on {socket.gethostname()}")
        began = _clock() if given.fail_on_error else None
        state = partial(fleet_state, processes, LATE_HEARTBEATS * settings.heartbeat_seconds)
        with probed(listener, state, partial(fleet_figures, processes)):
            clean, dead = processes.run()
        if dead:
            _recover(dead)
        if processes.refusal:
            raise CommandError(processes.refusal)
        return End(1 if not clean or (began is not None and _failed_since(began, settings.queues)) else 0, clean=True)

    def _greet(self, log: LogThread, verbosity: int, settings: conf.Settings, listener: socket.socket | None, who: str) -> None:
        if verbosity > 0:
            log.put(self._print, _greeting(who, settings, listener))

    def _print(self, lines: list[str]) -> None:
        try:
            for line in lines:
                self.stdout.write(line)
            self.stdout.flush()
        except OSError:  # the reader of the output is gone; without this, the interpreter fails at its end, too, when it flushes
            with contextlib.suppress(OSError, ValueError), open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _check_processes(options: dict[str, Any]) -> None:
    if options["fail_on_error"] and not options["once"]:
        raise CommandError("--fail-on-error needs --once: without it, workers do not exit when no jobs are left.")
    for name in ("processes", "max_jobs_per_process", "max_rss_mb"):
        option, value = f"--{name.replace('_', '-')}", options[name]
        if value is not None and value < 1:
            raise CommandError(f"{option} is {value}; it must be a whole number, 1 or more.")
        if value is not None and options["processes"] is None:
            raise CommandError(f"{option} needs --processes: a parent process must replace the worker process. Add --processes 1.")
    if (options["processes"] or 0) > MAX_PROCESSES:
        raise CommandError(f"--processes is {options['processes']}; it must be at most {MAX_PROCESSES}.")


def _listen(address: str | None) -> socket.socket | None:
    """Return the socket for the probes."""
    if address is None:
        return None
    try:
        return listen(address)
    except ValueError as error:
        raise CommandError(f"--http is {safe_repr(address)}; {error}.") from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise CommandError(f"--http {address} cannot be used: {reason}. Choose another port, or an address of this machine.") from error


def _recover(dead: dict[str, int | None]) -> None:
    """Recover the jobs of workers that died when no other worker was left, for up to `RECOVER_SECONDS`.

    It runs in a thread, since the database may not respond.
    """
    thread = threading.Thread(target=recover_dead, args=(dead,), daemon=True)
    thread.start()
    thread.join(RECOVER_SECONDS)


def _clock() -> datetime:
    """Return the time of the database, or the time of this machine if the database does not respond yet."""
    try:
        return overview.clock(Job.objects.database)
    except Error:
        return clock.now()
    finally:
        hygiene.close_all()  # the parent process holds no connection


def _failed_since(began: datetime, queues: tuple[str, ...]) -> bool:
    """Return whether jobs have ended in ERROR since `began`; if the database does not respond, return True.

    The database is queried, since a worker that was replaced or died has not reported its errors.
    """
    failed = Job.objects.current.filter(status=Job.Status.ERROR, finished_at__gte=began)
    try:
        return failed.served_by(queue_rules.parse(queues)).exists()
    except Error as error:
        logging.getLogger("jobqueue").error("Cannot check whether jobs have ended in ERROR: %s", str(error).strip())
        return True


def _overrides(options: dict[str, Any]) -> dict[str, Any]:
    given = {name: options[name] for name in OPTIONS if options[name] is not None}
    if options["queues"] is not None:
        given["queues"] = tuple(item.strip() for item in options["queues"].split(",")) if options["queues"] else ()
        if wrong := queue_rules.problem(given["queues"]):
            raise CommandError(f"--queues is {safe_repr(options['queues'])}: {wrong.text} {wrong.fix}")
    return given


def _settings(given: dict[str, Any]) -> conf.Settings:
    try:
        current = conf.current()
        # If only one of the two is given, it adjusts the other one, so that --max-workers 1 needs no second option.
        if "max_workers" in given and "min_workers" not in given:
            given["min_workers"] = min(current.min_workers, max(given["max_workers"], 1))
        elif "min_workers" in given and "max_workers" not in given:
            given["max_workers"] = max(current.max_workers, given["min_workers"])
        return current.with_overrides(**given)
    except (ImproperlyConfigured, JobQueueError) as error:
        raise CommandError(str(error)) from error


def _greeting(who: str, settings: conf.Settings, listener: socket.socket | None) -> list[str]:
    slots = (
        str(settings.max_workers) if settings.min_workers == settings.max_workers else f"{settings.min_workers} to {settings.max_workers}"
    )
    return [
        f"jobqueue {who}",
        f"  queues    {', '.join(settings.queues) or 'all'}",
        f"  slots     {slots}",
        f"  database  {Job.objects.database.description}",
        *([f"  probes    {url_of(listener)}"] if listener is not None else []),
        f"  lease     {settings.lease_seconds:g} s, renewed every {settings.heartbeat_seconds:g} s",
        f"  stop      Ctrl-C or SIGTERM: running jobs get {settings.shutdown_grace_period_seconds:g} s; again: interrupt them",
    ]
