"""The parts of the Overview, each only for users who may view its pages.

The charts count all jobs. A user who may not see all of them (`VISIBLE_JOBS`) gets the tables without them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from django.core.exceptions import BadRequest
from django.db.models import Model
from django.http import HttpRequest
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from jobqueue import clock
from jobqueue.admin import charts, figures, load_charts
from jobqueue.admin.labels import translated
from jobqueue.admin.overview import data, rows
from jobqueue.admin.pages import MODELS, Pages
from jobqueue.core.masking import mask_text
from jobqueue.core.texts import clean, shorten
from jobqueue.insight import samples
from jobqueue.insight.error_kinds import MAX_KINDS
from jobqueue.insight.fleet import Member
from jobqueue.insight.histories import NOW_SECONDS, Histories
from jobqueue.insight.problems import Problem
from jobqueue.insight.queues import QueueState
from jobqueue.models import Job, Queue, Schedule, Worker

RANGE: Final = "range"
RANGES: Final = {"1h": gettext_lazy("1 hour"), "24h": gettext_lazy("24 hours"), "14d": gettext_lazy("14 days")}
VERBS: Final[dict[str, Promise]] = {
    "failed_jobs": gettext_lazy("See the jobs"),
    "set_aside_jobs": gettext_lazy("See the job"),
    "passed_over_jobs": gettext_lazy("See the job"),
    "unknown_states": gettext_lazy("See the job"),
    "blocked_targets": gettext_lazy("Free the targets"),
    "long_wait": gettext_lazy("See what waits"),
    "unserved_queue": gettext_lazy("See what waits"),
    "no_worker": gettext_lazy("See the workers"),
    "silent_worker": gettext_lazy("Open the worker"),
    "stuck_threads": gettext_lazy("Open the worker"),
    "stuck_service": gettext_lazy("Open the worker"),
    "failed_module": gettext_lazy("Open the worker"),
    "stuck_duty": gettext_lazy("Release the duty"),
    "failing_schedules": gettext_lazy("Correct the schedules"),
    "schedule_conflicts": gettext_lazy("Open the schedule"),
    "failed_webhooks": gettext_lazy("Redeliver"),
    "retried_webhooks": gettext_lazy("See the deliveries"),
    "late_webhooks": gettext_lazy("See the deliveries"),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem, with the page where an operator can act."""

    problem: Problem
    text: str
    fix: str
    url: str
    verb: Promise | str


@dataclass(frozen=True, slots=True)
class Tile:
    """A number with its chart."""

    name: str
    value: str
    note: str
    url: str
    spark: str


def period_of(request: HttpRequest) -> str:
    """Return the range that the URL names."""
    period = request.GET.get(RANGE, "1h")
    if period not in RANGES:
        raise BadRequest(f"range is {shorten(clean(period), 40)!r}; it must be one of {', '.join(RANGES)}.")
    return period


def rights_of(pages: Pages) -> dict[type[Model], bool]:
    """Return which models' pages the user may view."""
    return {model: pages.may_view(model) for model in MODELS.values()}


def context(request: HttpRequest) -> dict[str, Any]:
    """Return the parts that the user may view; empty if these are none."""
    pages, period, user = Pages(request), period_of(request), request.user
    may = rights_of(pages)
    if not any(may[model] for model in (Job, Queue, Schedule, Worker)):
        return {}
    sees_all = samples.may_see(user)
    loads = data.queue_loads(period) if may[Queue] and sees_all else None
    states = data.queue_states(user) if may[Queue] else None
    members = data.members() if may[Worker] else None
    found: dict[str, Any] = {
        "period": period,
        "ranges": [(name, label, f"?{RANGE}={name}", name == period) for name, label in RANGES.items()],
        "at": f"{timezone.localtime(clock.now()):%H:%M:%S}",
        "is_narrowed": not sees_all,
        "part_url": pages.url("jobqueue_job_overview", **{RANGE: period}),
        "duties_url": pages.url("jobqueue_backgroundjoblease_changelist"),
    }
    if sees_all:
        problems = data.current_problems()
        found["findings"] = [finding for problem in problems if (finding := _finding(pages, problem)) is not None]
    if states is not None:
        found["tiles"] = _tiles(pages, states, members, loads)
        found["queues"] = rows.queue_rows(pages, states, loads)
        found["queues_url"] = pages.url("jobqueue_queue_changelist")
    if loads is not None:
        found |= {
            "chart": load_charts.throughput(loads, load_charts.marks(loads, members, data.pauses())),
            "has_samples": bool(loads.by_name),
        }
        tasks = data.task_loads(period)
        found |= {"tasks": rows.task_rows(pages, tasks.longest, tasks.run_seconds), "tasks_url": pages.url("jobqueue_job_tasks")}
    if may[Job]:
        kinds = data.kinds(user)
        found |= {"kinds": rows.kind_rows(pages, kinds[: rows.MAX_KINDS]), "more_kinds": len(kinds) > rows.MAX_KINDS}
        found |= {"all_kinds": figures.count(len(kinds), more=len(kinds) >= MAX_KINDS)}
        found["errors_url"] = pages.url("jobqueue_job_errors") or pages.jobs(status="ERROR")
    if members is not None:
        found |= {"releases": rows.release_rows(members), "workers": rows.worker_rows(pages, members)}
        found |= {"alive": sum(member.is_alive for member in members), "workers_url": pages.url("jobqueue_worker_changelist")}
    if may[Schedule]:
        found |= {
            "schedules": rows.schedule_rows(pages, data.next_schedules()),
            "schedules_url": pages.url("jobqueue_schedule_changelist"),
        }
    return found


def _finding(pages: Pages, problem: Problem) -> Finding | None:
    if problem.link is not None and not pages.may_link(problem.link):
        return None
    texts = (mask_text(translated(problem.text)), translated(problem.fix))
    return Finding(problem, *texts, pages.link(problem.link), VERBS.get(problem.code, _("Show")))


def _tiles(pages: Pages, states: list[QueueState], members: list[Member] | None, loads: Histories | None) -> list[Tile]:
    waiting, running = sum(state.queued for state in states), sum(state.running for state in states)
    # The slots are up to 10 s old, so a worker that has just grown can run more jobs than it had slots.
    slots = max(running, sum(member.slots for member in members if member.is_alive)) if members is not None else None
    points = loads.points if loads is not None else []
    tiles = [
        Tile(
            _("Waiting"),
            figures.count(waiting, more=any(state.queued_is_capped for state in states)),
            _("jobs that can be claimed"),
            pages.jobs(status="QUEUED"),
            charts.sparkline([load.queued for load in points], _("Waiting jobs over time")) if points else "",
        ),
        Tile(
            _("Running"),
            figures.count(running),
            "" if slots is None else _("of %(number)s slots") % {"number": figures.count(slots)},
            pages.jobs(status="RUNNING"),
            charts.sparkline([load.running for load in points], _("Running jobs over time")) if points else "",
        ),
    ]
    if loads is not None:
        now = sum(load.ended for load in loads.recent) / NOW_SECONDS
        total, ended = loads.total, loads.rates(load.ended for load in points)
        share = total.failed / total.ended if total.ended else 0.0
        failed = [load.failed / load.ended if load.ended else 0.0 for load in points]
        tiles += [
            Tile(
                _("Ended per second"), figures.rate(now), _("in the last 5 minutes"), "", charts.sparkline(ended, _("Ended jobs over time"))
            ),
            Tile(
                _("Failed"),
                figures.percent(share),
                _("of %(number)s that ended") % {"number": figures.count(total.ended)},
                pages.url("jobqueue_job_errors") if pages.may_view(Job) else "",
                charts.sparkline(failed, _("Share of failed jobs over time"), "jq-bad"),
            ),
        ]
    return tiles
