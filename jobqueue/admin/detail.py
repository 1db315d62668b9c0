"""The data of the page of one job. All texts are plain (the template escapes them), masked, and of bounded length."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html
from django.utils.translation import gettext as _

from jobqueue.access.hiding import arguments_of, mask_of
from jobqueue.admin import columns, phases, task_choices
from jobqueue.admin.formatting import NOTHING, as_json, duration, excerpt, masked_json, moment, prose
from jobqueue.admin.job_runs import Row, RunRow, failed_runs, process_names, rows_of, succeeded
from jobqueue.admin.labels import translated
from jobqueue.admin.listing import workers_of
from jobqueue.admin.pages import Pages
from jobqueue.admin.phases import PhaseRow
from jobqueue.core import time_limits
from jobqueue.core.capping import SHOWN_BYTES
from jobqueue.core.masking import Mask
from jobqueue.core.states import ENDED, FINAL, PENDING_TARGET
from jobqueue.core.webhook_rules import shown_url
from jobqueue.insight.report import report
from jobqueue.insight.timeline import TimelineEvent, timeline
from jobqueue.insight.waits import in_words
from jobqueue.models import Job

STOPPED = (Job.Status.PAUSED, Job.Status.CANCELED)  # a run that was asked to stop did not fail
MAX_TEXT = 300


@dataclass(frozen=True, slots=True)
class TimelineRow:
    """One line of the timeline."""

    id: int
    name: str
    label: str
    at: str
    after: str
    attempt: int
    text: str


@dataclass(frozen=True, slots=True)
class JobPage:
    """The data of the template for one job."""

    job: Job
    is_final: bool  # nothing can change any more, except by deletion
    time_zone: str
    report: list[Row]
    status: str
    message: str
    phases: list[PhaseRow]
    arguments: list[Row]
    result: str | None
    options: str
    metadata: str
    sections: list[tuple[str, list[Row]]]
    traceback: str  # of the error in which the job ended
    runs: list[RunRow]
    events: list[TimelineRow]
    older_events: bool


def job_page(request: HttpRequest, job: Job) -> JobPage:
    """Return the data of the page of a job that was read with all columns."""
    now = columns.now_of(job)
    mask = mask_of(job)
    events, older = timeline(job, mask=mask)
    names = process_names(Pages(request), job)
    runs = [*succeeded(job, mask, names), *failed_runs(job.history, mask, names)]
    return JobPage(
        job=job,
        is_final=job.status in FINAL,
        time_zone=timezone.get_current_timezone_name(),
        report=_report(job) if _has_report(job) else [],
        status=columns.status(job),
        message=prose(job.message, mask=mask),
        phases=phases.rows(job, now, mask),
        arguments=arguments(job),
        result=masked_json(job.result, mask) if job.status == Job.Status.SUCCESS or job.result is not None else None,
        options=masked_json(job.options, mask) if job.options else "",
        metadata=masked_json(job.metadata, mask) if job.metadata else "",
        sections=[(_("What"), _what(job, mask)), (_("When"), _when(job, now)), (_("Budget"), _budget(job)), (_("Lease"), _lease(job, now))],
        traceback=runs[0].traceback if runs and job.status == Job.Status.ERROR else "",
        runs=runs,
        events=[_event(event) for event in events],
        older_events=older,
    )


def _event(event: TimelineEvent) -> TimelineRow:
    label = event.name.removeprefix("job.").replace(".", " ").replace("_", " ").capitalize()
    # The message comes first, then the other values by name. Two values are left out: the position of a phase,
    # which the list of phases shows, and attempt 1.
    data = {name: value for name, value in event.data.items() if name != "position" and (name, value) != ("attempt", 1)}
    message = data.pop("message", None)
    details = [_datum(name, value) for name, value in data.items() if value not in (None, "")]
    text = "; ".join([*([str(message)] if message else []), *details])
    after = "" if event.seconds is None else f"+{duration(event.seconds)}"
    return TimelineRow(event.id, event.name, label, moment(event.at), after, event.attempt, prose(text, MAX_TEXT))


def _datum(name: str, value: object) -> str:
    """Return one value of an event as text; a duration is rounded."""
    words = name.replace("_", " ")
    if name.endswith("_seconds") and isinstance(value, int | float):
        return f"{words.removesuffix(' seconds')}: {duration(value)}"
    return f"{words}: {value}"


def _has_report(job: Job) -> bool:
    return bool(job.attempt) or job.status in ENDED


def _report(job: Job) -> list[Row]:
    """Return the results of the job in a few lines; the rest of the page has the details."""
    facts = report(job, most=SHOWN_BYTES)
    last, in_all, waited = facts["ran_seconds"], facts["ran_seconds_in_all"], facts["waited_seconds"]
    count = facts["attempts"]
    errors = [run for run in facts["runs"] if run["exception"] or run["outcome"] not in STOPPED]
    took = "" if last is None else _("%(duration)s in the last run") % {"duration": duration(last)}
    in_all_runs = _(", %(duration)s in all") % {"duration": duration(in_all)} if last is not None and in_all > last else ""
    runs = [
        _("%(runs)s started") % count,
        _("%(failures)s failed of at most %(max_attempts)s") % count,
        *([_("%(crashes)s lost with a worker") % count] if count["crashes"] else []),
    ]
    error = (errors[-1]["message"] or errors[-1]["exception"] or errors[-1]["outcome"] or _("unknown")) if errors else ""
    # it ended without a run, as after it was set aside, or its history is not readable
    if not errors and job.status == Job.Status.ERROR:
        errors, error = [{}], mask_of(job)(job.message)
    return rows_of(
        (_("Outcome"), translated(job.get_status_display()) if job.status in ENDED else _("not ended yet")),
        (_("Runs"), ", ".join(runs)),
        (_("Waited"), in_words(facts["waits"], duration)),
        (_("Was claimable for"), "" if waited is None else _("%(duration)s before the last run") % {"duration": duration(waited)}),
        (_("Ran"), f"{took}{in_all_runs}"),
        (_("Errors"), _last_error(len(errors), excerpt(error, MAX_TEXT)) if errors else _("none")),
    )


def _last_error(number: int, error: str) -> str:
    return error if number == 1 else _("%(number)s; the last: %(error)s") % {"number": number, "error": error}


def arguments(job: Job) -> list[Row]:
    """Return the arguments by name; positional ones of an unknown task by number, and a malformed column unchanged."""
    args, kwargs = arguments_of(job, SHOWN_BYTES)
    if not isinstance(job.args, list) or not isinstance(job.kwargs, dict):
        return [_argument("args", as_json(args)), _argument("kwargs", as_json(kwargs))]
    entry = task_choices.entry(job.task)
    func, takes_context = (entry.func, entry.takes_context) if entry is not None else (None, False)
    names = _names(func, len(args), takes_context)
    rows = [_argument(name, as_json(value)) for name, value in zip(names, args, strict=True)]
    return rows + [_argument(str(name), as_json(value)) for name, value in kwargs.items()]


def _argument(name: str, text: str) -> Row:
    return Row(name, text, block="\n" in text or len(text) > 80)


def _names(func: Callable[..., Any] | None, count: int, takes_context: bool) -> list[str]:
    """Return a name for each of `count` positional arguments, without the context."""
    try:
        parameters = [*inspect.signature(func).parameters.values()] if func is not None else []
    except (TypeError, ValueError):
        parameters = []
    names = [each.name for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)][takes_context:]
    return [*names[:count], *(_("argument %(number)s") % {"number": number} for number in range(len(names) + 1, count + 1))]


def _what(job: Job, mask: Mask) -> list[Row]:
    return rows_of(
        (_("Task"), job.task),
        (_("Registered here"), _("yes") if task_choices.entry(job.task) else _("no: this process has no such task")),
        (_("Queue"), prose(job.queue, mask=mask)),
        (_("Priority"), job.priority),
        (_("Tenant"), prose(job.tenant, mask=mask)),
        (_("Target"), _target(job, mask)),
        (_("Holds its target"), _("yes") if job.holds_target else ""),
        (_("Unique key"), prose(job.unique_key, mask=mask)),
        (_("Phase"), prose(job.phase, mask=mask)),
        (_("Webhook"), shown_url(job.webhook_url)),
    )


def _target(job: Job, mask: Mask) -> str:
    """Return the target as a link to its jobs; a target or tenant with a secret is not linked, because URLs are shown and stored."""
    shown = prose(job.target, mask=mask)
    if not job.target or shown != job.target or mask(job.tenant) != job.tenant:
        return shown
    return format_html('<bdi><a href="{}">{}</a></bdi>', columns.jobs_of_target(job), shown)


def _when(job: Job, now: datetime) -> list[Row]:
    times = (
        (_("Created"), job.created_at),
        (_("Not before"), job.run_at),
        (
            _("Canceled if not started by") if job.first_started_at is None and job.finished_at is None else _("Had to start by"),
            job.expires_at,
        ),
        (_("Waits for its target since") if job.place == PENDING_TARGET else _("Claimable since"), job.enqueued_at),
        (_("First started"), job.first_started_at),
        (_("Last started"), job.started_at if job.started_at != job.first_started_at else None),
        (_("Finished"), job.finished_at),
    )
    known_times = [(name, moment(when, now)) for name, when in times if when is not None]
    # The report has these from the history of the runs; the times of the row can differ by some milliseconds.
    spans = [] if _has_report(job) else [(_("Waited"), columns.waited(job)), (_("Ran"), columns.ran(job))]
    return rows_of(*known_times, *spans)


def _budget(job: Job) -> list[Row]:
    limit = time_limits.of_options(job.options)
    return rows_of(
        (_("Runs started"), job.attempt),
        (_("Failures"), _("%(number)s of %(most)s") % {"number": job.failures, "most": job.max_attempts}),
        (_("Lost with a worker"), job.crashes),
        (_("Time limit of a run"), time_limits.shown(limit) if limit else ""),
        (_("If its worker is lost"), translated(job.get_recovery_display())),
    )


def _lease(job: Job, now: datetime) -> list[Row]:
    process = next(iter(workers_of([job]).values()), None)
    outcome = _("yes, to be canceled") if job.cancel_outcome == Job.Status.CANCELED else _("yes, to be paused")
    stop = outcome if job.cancel_requested else ""
    return rows_of(
        (_("Runs on") if job.lease_owner else _("Ran last on"), str(process) if process else ""),
        (_("Worker"), columns.owner_of(job) or NOTHING),
        (_("Release"), process.release if process else ""),
        (_("Lease token"), job.lease_token),
        (_("Lease ends"), moment(job.lease_expires_at, now) if job.lease_expires_at else ""),
        (_("Last heartbeat"), moment(job.heartbeat_at, now) if job.heartbeat_at else ""),
        (_("Asked to stop"), stop),
    )
