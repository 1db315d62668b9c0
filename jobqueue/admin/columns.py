"""The columns of the list of jobs, without queries, and without styles or scripts in the markup."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final
from urllib.parse import urlencode

from django.contrib import admin
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from jobqueue import clock
from jobqueue.admin.formatting import NOTHING, ago, between
from jobqueue.admin.labels import translated
from jobqueue.core import masking
from jobqueue.core.search import part_of
from jobqueue.core.states import ENDED, PENDING_TARGET, Status, WaitingFor
from jobqueue.insight.arguments import brief
from jobqueue.models import Job

BRIEF_CHARACTERS = 120
WAITS: Final[dict[str, Any]] = {
    WaitingFor.TIME: gettext_lazy("for its time"),
    WaitingFor.CHILDREN: gettext_lazy("for its children"),
    WaitingFor.TARGET: gettext_lazy("for its target"),
}
# A sign in addition to the color, for users who do not see the difference between red and green.
SIGNS: Final = {
    "pending": "◔",
    "queued": "•",
    "assigned": "▷",
    "running": "▶",
    "stopping": "■",
    "paused": "‖",
    "error": "!",
    "success": "✓",
    "canceled": "\N{MULTIPLICATION SIGN}",
    "draining": "■",
    "silent": "!",
}


def badge(kind: str, label: Any, note: Any = "") -> SafeString:
    """Return a colored label with a sign, and a note after it."""
    shown = format_html('<span class="jq-badge jq-{}"><span aria-hidden="true">{}</span> {}</span>', kind, SIGNS.get(kind, "•"), label)
    return format_html('{} <span class="jq-note">{}</span>', shown, note) if note else shown


def now_of(job: Job) -> datetime:
    """Return the database's time at which the job was read."""
    now: datetime = getattr(job, "now", None) or clock.now()
    return now


def owner_of(job: Job) -> str:
    """Return the identity of the worker that runs the job, or ran it last; empty if there is none."""
    if job.lease_owner:
        return job.lease_owner
    last = job.worker_ids[-1] if isinstance(job.worker_ids, list) and job.worker_ids else ""
    return last if isinstance(last, str) else ""


@admin.display(description=gettext_lazy("job"), ordering="id")
def number(job: Job) -> str:
    """Return the job's number."""
    return f"#{job.pk}"


@admin.display(description=gettext_lazy("status"))
def status(job: Job) -> SafeString:
    """Return a job's status; a claimed job that has not begun is "assigned", one that was asked to stop is "stopping"."""
    if job.status == Status.RUNNING:
        if job.cancel_requested:
            return badge("stopping", _("Stopping"), _("to be canceled") if job.cancel_outcome == Status.CANCELED else _("to be paused"))
        return badge("assigned", _("Assigned")) if job.assigned else badge("running", _("Running"))
    note = WAITS.get(job.waiting_for, "")
    return badge(job.status.lower(), translated(job.get_status_display()), note)


@admin.display(description=gettext_lazy("queue"))
def queue(job: Job) -> SafeString:
    """Return the queue, with a link to its jobs."""
    name = masking.mask_text(job.queue)
    if name != job.queue:  # URLs are shown and stored
        return format_html("<bdi>{}</bdi>", name)
    return format_html('<a href="{}"><bdi>{}</bdi></a>', jobs_with(queue=name), name)


@admin.display(description=gettext_lazy("task"))
def task(job: Job) -> SafeString:
    """Return the task's name with a link to its jobs, its module in small print, and the beginning of the job's message."""
    module, _, name = job.task.rpartition(".")
    linked = format_html('<a href="{}">{}</a>', jobs_with(task=job.task), name) if masking.mask_text(job.task) == job.task else name
    shown = format_html('<bdi class="jq-task" title="{}">{}</bdi><bdi class="jq-module">{}</bdi>{}', job.task, linked, module, _target(job))
    message = masking.mask_text(getattr(job, "brief", "")).strip().partition("\n")[0]
    if not message:
        return shown
    short = message if len(message) <= BRIEF_CHARACTERS else f"{message[:BRIEF_CHARACTERS]}…"
    return format_html('{}<span class="jq-brief jq-brief-{}">{}</span>', shown, job.status.lower(), short)


@admin.display(description=gettext_lazy("arguments"))
def arguments(job: Job) -> SafeString | str:
    """Return the masked arguments in brief."""
    text = brief(job)
    return format_html('<bdi class="jq-arguments">{}</bdi>', text) if text else NOTHING


@admin.display(description=gettext_lazy("when"))
def when(job: Job) -> SafeString:
    """Return how long ago the job ended, or else started, or else was created."""
    at = job.finished_at if job.status in ENDED else job.started_at if job.status == Status.RUNNING else None
    return ago(at or job.created_at, now_of(job))


def _target(job: Job) -> SafeString | str:
    if not job.target:
        return ""
    if any(masking.mask_text(one) != one for one in (job.target, job.tenant)):  # URLs are shown and stored
        return format_html('<bdi class="jq-target">{}</bdi>', masking.mask_text(job.target))
    return format_html('<a class="jq-target" href="{}"><bdi>{}</bdi></a>', jobs_of_target(job), job.target)


def jobs_of_target(job: Job) -> str:
    """Return the URL of the list of the jobs of the same target."""
    return jobs_with(target=job.target, **({"tenant": job.tenant} if job.tenant else {}))


def jobs_with(**filters: str) -> str:
    """Return the URL of the list of the jobs that filters select."""
    return f"{reverse('admin:jobqueue_job_changelist')}?{urlencode(filters)}"


@admin.display(description=gettext_lazy("priority"))
def priority(job: Job) -> str:
    """Return the priority if it is not the usual one."""
    return str(job.priority) if job.priority else NOTHING


@admin.display(description=gettext_lazy("progress"))
def progress(job: Job) -> SafeString | str:
    """Return a bar if there is progress to show."""
    if job.progress <= 0 and job.status != Status.RUNNING:
        return NOTHING
    bar = '<progress class="jq-bar jq-bar-{}" max="100" value="{}" aria-label="{}"></progress> <span class="jq-percent">{} %</span>'
    return format_html(bar, job.status.lower(), job.progress, _("progress"), job.progress)


@admin.display(description=gettext_lazy("waited"))
def waited(job: Job) -> str:
    """Return how long a job was available, or has waited for its target, before it began; or when it is due."""
    now = now_of(job)
    if job.place == PENDING_TARGET:
        return between(job.enqueued_at, now)
    if job.status == Status.PENDING:
        if job.waiting_for != WaitingFor.TIME or job.run_at is None:
            return NOTHING
        return _("due in %(duration)s") % {"duration": between(now, job.run_at)} if job.run_at > now else _("due now")
    if job.status == Status.QUEUED or job.assigned:
        return between(job.enqueued_at, now)
    if job.started_at is None or job.started_at < job.enqueued_at:
        return NOTHING
    return between(job.enqueued_at, job.started_at)


@admin.display(description=gettext_lazy("ran"))
def ran(job: Job) -> str:
    """Return how long the current or the last run took."""
    if job.started_at is None:
        return NOTHING
    if job.status == Status.RUNNING:
        return between(job.started_at, now_of(job))
    if job.finished_at is None or job.finished_at < job.started_at:
        return NOTHING
    return between(job.started_at, job.finished_at)


@admin.display(description=gettext_lazy("attempt"))
def attempt(job: Job) -> SafeString | str:
    """Return the number of runs, with the maximum while `max_attempts` still limits it."""
    if not job.attempt:
        return NOTHING
    of = _("%(number)s of %(most)s") % {"number": job.attempt, "most": job.max_attempts}
    runs = of if job.attempt <= job.max_attempts else str(job.attempt)
    if not job.crashes:
        return runs
    return format_html('{} <span class="jq-note">{}</span>', runs, _("%(number)s lost") % {"number": job.crashes})


@admin.display(description=gettext_lazy("worker"))
def worker(job: Job) -> SafeString | str:
    """Return where the job runs or ran: host and process if they are known, else the worker's shortened identity."""
    owner = owner_of(job)
    if not owner:
        return NOTHING
    process = getattr(job, "worker", None)
    if not process:
        return format_html('<bdi class="jq-worker" title="{}">{}…</bdi>', owner, owner[:8])
    url = jobs_with(q=part_of("worker", str(process)))
    return format_html('<a class="jq-worker" title="{}" href="{}"><bdi>{}</bdi></a>', owner, url, str(process))
