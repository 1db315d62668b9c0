"""The command ``manage.py jobqueue``, which shows and controls queues, jobs, schedules, duties and webhooks."""

from __future__ import annotations

import json
import sys
from argparse import SUPPRESS, ArgumentParser
from collections.abc import Callable
from dataclasses import asdict
from io import TextIOWrapper
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError
from django.db.utils import Error

from jobqueue import db
from jobqueue.db import Now
from jobqueue.exceptions import JobDoesNotExist, JobQueueError
from jobqueue.insight import duties, error_kinds, queue_names
from jobqueue.insight.why import why_waiting
from jobqueue.lifecycle import control, queues
from jobqueue.management import (
    activity,
    audit,
    bulk,
    job_verbs,
    log,
    prune,
    report_text,
    rerun,
    samples,
    schedules,
    search,
    status,
    tables,
    targets,
    terminal,
    webhooks,
    workers,
)
from jobqueue.management import health as health_command
from jobqueue.models import Job

Lines = list[str]


class Command(BaseCommand):
    """The command ``jobqueue``, with a subcommand for each thing that an operator can show or change."""

    help = "Show and control queues, jobs, workers, schedules and webhooks."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the subcommands and their arguments."""
        chosen = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
        for name, (text, argument) in SUBCOMMANDS.items():
            command = chosen.add_parser(name, help=text, description=text)
            if argument == "queue":
                command.add_argument("queue", help="the name of the queue")
                if name == "pause":
                    command.add_argument("--until", metavar="WHEN", help="end the pause at a time (ISO 8601), or after a number of seconds")
            elif argument == "jobs":
                command.add_argument("jobs", nargs="+", metavar="JOB_ID", help="the number of a job, or its public id")
            elif argument == "job":
                command.add_argument("job", metavar="JOB_ID", help="the number of the job, or its public id")
                command.add_argument("--tracebacks", action="store_true", help="show where each error was raised")
            elif argument == "worker":
                command.add_argument("worker", metavar="WORKER", help="the id of a worker process, or its host and process id: HOST:PID")
            elif argument == "prune":
                prune.add_arguments(command)
            elif argument in ADDERS:
                ADDERS[argument](command)
            command.add_argument("--json", action="store_true", help="print JSON")
            # Django's option, so that it can be given after the subcommand, too.
            command.add_argument("--no-color", action="store_true", default=SUPPRESS, help="print no colors")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run one subcommand; exit with a status other than 0 if something was refused or a problem was found."""
        for wrapper in (self.stdout, self.stderr):  # the terminal or pipe may accept only ASCII or Latin-1
            if isinstance(stream := getattr(wrapper, "_out", None), TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        try:
            with terminal.shown_on(terminal.screen_of(self.stdout, self.style, force_color=options["force_color"])):
                data, lines, fine_or_status = DOERS[options["what"]]({**options, **self._output()})
            audit.record(options, data)
        except (JobQueueError, ImproperlyConfigured) as error:
            audit.record_failure(options, error)
            raise CommandError(str(error)) from error
        except Error as error:
            raise CommandError(_of_the_database(error)) from error
        for line in [json.dumps(data, indent=2, default=str)] if options["json"] else map(tables.shown, lines):
            self.stdout.write(line)
        # Most subcommands return whether they succeeded; `health` returns its exit status.
        exit_status = int(not fine_or_status) if isinstance(fine_or_status, bool) else fine_or_status
        if exit_status:
            self.stdout.flush()
            sys.exit(exit_status)

    def _output(self) -> dict[str, Callable[..., None]]:
        return {"tell": self.stderr.write, "print": self.stdout.write, "flush": self.stdout.flush}


def _of_the_database(error: Error) -> str:
    if db.is_missing_table(error):
        return db.missing_tables(Job.objects.database.alias)
    return f"Cannot reach the database: {str(error).strip()}. Check that it runs, and that DATABASES is correct."


# The subcommands: each returns its result as JSON values and as lines of text, and whether it succeeded.


def _pause(options: dict[str, Any]) -> tuple[Any, Lines, bool]:
    until = options["until"]
    return _decided(queues.pause_queue(options["queue"], until=None if until is None else queues.until_of(until)))


def _resume(options: dict[str, Any]) -> tuple[Any, Lines, bool]:
    return _decided(queues.resume_queue(options["queue"]))


def _decided(answer: queues.QueueAnswer) -> tuple[Any, Lines, bool]:
    until = f" until {tables.iso(answer.paused_until)}" if answer.paused_until else ""
    now = f"paused{until}: workers start none of its jobs, and running jobs continue" if answer.paused else "not paused"
    lines = [f"Queue {answer.name!r} is {now}{'' if answer.changed else ' (no change)'}."]
    warning = queue_names.warning(answer.name) if answer.paused else ""
    data = {**asdict(answer), "paused_until": tables.iso(answer.paused_until), "warning": warning}
    return data, [*lines, *([f"Warning: {warning}"] if warning else [])], True


def _forget(options: dict[str, Any]) -> tuple[Any, Lines, bool]:
    name, removed = options["queue"], queues.forget_queue(options["queue"])
    text = (
        f"Queue {name!r} was forgotten: its pause, limit and webhook were removed." if removed else f"Queue {name!r} has no row to remove."
    )
    return {"name": name, "forgotten": removed}, [text], True


def _cancel(options: dict[str, Any]) -> tuple[Any, Lines, bool]:
    return job_verbs.act(options["jobs"], control.cancel, "canceled")


def _resume_job(options: dict[str, Any]) -> tuple[Any, Lines, bool]:
    return job_verbs.act(options["jobs"], control.resume, "resumed")


def _prune(options: dict[str, Any]) -> tuple[Any, Lines, bool]:
    return prune.prune(options, options["tell"])


def _leaders(options: dict[str, Any]) -> tuple[Any, Lines, bool]:
    leaders = duties.leaders()
    return (
        [asdict(leader) for leader in leaders],
        tables.table(tables.LEADER_COLUMNS, [tables.leader_cells(leader) for leader in leaders]),
        True,
    )


def _report(options: dict[str, Any]) -> tuple[Any, Lines, bool]:
    job_id = job_verbs.job_id(options["job"])
    job = Job.objects.current.annotate(now=Now()).filter(pk=job_id).first()
    if job is None:
        raise JobDoesNotExist(f"There is no job {job_id}.")
    facts, why = job.report(tracebacks=options["tracebacks"]), why_waiting(job)
    data = {**facts, "why_waiting": asdict(why) if why is not None else None}
    return data, report_text.lines(facts, why.text if why is not None else ""), True


def _errors(options: dict[str, Any]) -> tuple[Any, Lines, bool]:
    found = error_kinds.error_kinds()
    data = [{**asdict(one), **{name: tables.iso(getattr(one, name)) for name in ("first_at", "last_at")}} for one in found]
    return data, ["Errors", *tables.table(tables.ERROR_COLUMNS, [tables.error_cells(one) for one in found])], True


SUBCOMMANDS = {
    "pause": ("Pause a queue: workers start none of its jobs, and running jobs continue.", "queue"),
    "resume": ("Resume a queue: workers start its jobs again.", "queue"),
    "forget": ("Remove the row of a queue that is no longer used: its pause, limit and webhook.", "queue"),
    "status": ("Show the queues, the workers that are alive, and how many jobs there are in each state.", "status"),
    "workers": ("Show the workers by release and those that left, or one worker with the jobs that it runs.", "workers"),
    "drain": ("Drain a worker: it starts no more jobs, and its running jobs continue.", "worker"),
    "undrain": ("Make a drained worker start jobs again.", "worker"),
    "errors": ("Show the kinds of errors of the jobs in ERROR: how many jobs, since when, and the newest of them.", ""),
    "jobs": ("Search for jobs, and show the newest.", "jobs-search"),
    "samples": ("Show what came, waited, ran and ended: of all queues or tasks in the last minutes, or of one over time.", "samples"),
    "scaler": ("Show how many slots each queue needs: the autoscaling signal.", "scaler"),
    "schedules": ("Show the schedules: when each is due next and was last, and its error; or the history of one.", "schedules"),
    "run-schedule": ("Enqueue a job of a schedule now; its times stay as they are.", "schedule"),
    "enable-schedule": ("Enable a schedule, from its next time on.", "schedule"),
    "disable-schedule": ("Disable a schedule until it is enabled again.", "schedule"),
    "targets": ("Show the targets: the job that holds or blocks each, and how many jobs wait for it.", "targets"),
    "clear-target": ("Cancel the jobs that hold or block a target; exit with 1 if one was refused.", "target"),
    "cancel": ("Cancel jobs; exit with 1 if one was refused.", "jobs"),
    "resume-job": ("Resume jobs that are paused or in error; exit with 1 if one was refused.", "jobs"),
    "rerun": ("Enqueue a copy of a job that has ended, with the same or other arguments.", "rerun"),
    "retry": ("Resume all jobs in ERROR that a search finds.", "change-all"),
    "resume-all": ("Resume all PAUSED jobs that a search finds.", "change-all"),
    "cancel-all": ("Cancel all jobs that a search finds.", "change-all"),
    "pause-all": ("Pause all jobs that a search finds.", "change-all"),
    "delete-all": ("Delete all jobs that a search finds, except for running ones.", "change-all"),
    "bulk": ("Show the newest bulk actions, or one of them, or stop it; exit with 1 if it has failed.", "bulk"),
    "activity": ("Show who did what to which object: from the admin, REST and the command line.", "activity"),
    "leaders": ("Show the duties: their leaders, their last runs, and their problems.", ""),
    "report": ("Show the report on one job: its state, attempts, times, outcome and errors.", "job"),
    "log": ("Show what a job has logged, by level and run; with --follow until it has ended.", "log"),
    "health": ("List all problems; exit with 1 if there is an error, with 3 if there are only warnings.", "health"),
    "prune": ("Delete ended jobs and mark stale ones: by the settings, or by their age.", "prune"),
    "webhooks": ("Show the newest webhook deliveries: their receivers and their state; or one of them with its attempts.", "webhooks"),
    "redeliver": ("Send webhooks again that were delivered or given up; exit with 1 if one was refused.", "redeliver"),
    "deliveries": ("Send webhooks now, give them up, or send them to the current URL; exit with 1 if one was refused.", "deliveries"),
    "set-webhook": ("Set or show the URL to which the events of a queue's jobs are sent.", "set-webhook"),
    "test-webhook": ("Send a test to the webhook of a queue, and show the response; exit with 1 if it was not accepted.", "queue"),
}
DOERS: dict[str, Callable[[dict[str, Any]], tuple[Any, Lines, bool | int]]] = {
    "pause": _pause,
    "resume": _resume,
    "forget": _forget,
    "status": status.status,
    "workers": workers.workers,
    "drain": workers.drain,
    "undrain": workers.undrain,
    "errors": _errors,
    "jobs": search.jobs,
    "samples": samples.show_samples,
    "scaler": samples.show_scaler,
    "schedules": schedules.schedules,
    **dict.fromkeys(schedules.VERBS, schedules.act),
    "targets": targets.show_targets,
    "clear-target": targets.clear,
    "cancel": _cancel,
    "resume-job": _resume_job,
    **dict.fromkeys(bulk.COMMANDS, bulk.change_all),
    "bulk": bulk.bulk,
    "activity": activity.show_activity,
    "leaders": _leaders,
    "report": _report,
    "rerun": lambda options: rerun.rerun(options, job_verbs.job_id(options["job"])),
    "log": lambda options: log.show_log(options, job_verbs.job_id(options["job"])),
    "health": health_command.health,
    "prune": _prune,
    "webhooks": webhooks.webhooks,
    "redeliver": webhooks.redeliver_all,
    "deliveries": webhooks.act_on_deliveries,
    "set-webhook": webhooks.set_webhook,
    "test-webhook": webhooks.test_webhook,
}
ADDERS: dict[str, Callable[[ArgumentParser], None]] = {
    "change-all": bulk.add_arguments,
    "bulk": bulk.add_bulk_arguments,
    "log": log.add_arguments,
    "rerun": rerun.add_arguments,
    "jobs-search": search.add_arguments,
    "activity": activity.add_activity_arguments,
    "health": health_command.add_arguments,
    "samples": samples.add_samples_arguments,
    "status": status.add_arguments,
    "scaler": samples.add_scaler_arguments,
    "schedules": schedules.add_schedules_arguments,
    "schedule": schedules.add_name,
    "targets": targets.add_targets_arguments,
    "target": targets.add_target,
    "workers": workers.add_workers_arguments,
    "webhooks": webhooks.add_webhooks_arguments,
    "redeliver": webhooks.add_redeliver_arguments,
    "deliveries": webhooks.add_deliveries_arguments,
    "set-webhook": webhooks.add_set_webhook_arguments,
}
