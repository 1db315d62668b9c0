"""The admin of `Worker`: the worker processes, with those whose heartbeats stopped."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from jobqueue import clock
from jobqueue.admin import columns
from jobqueue.admin.base import ReadOnlyAdmin
from jobqueue.admin.formatting import NOTHING, between, duration, moment
from jobqueue.db import Now
from jobqueue.insight.workers import HEARD_SECONDS, failed_modules, running_jobs, stuck_services
from jobqueue.models import Worker


class WorkerAdmin(ReadOnlyAdmin[Worker]):
    """The admin of the worker processes."""

    list_display = (
        "process",
        "shown_state",
        "served",
        "shown_slots",
        "running_now",
        "stuck_threads",
        "troubles",
        "release",
        "version",
        "started",
        "heard",
    )
    sortable_by = ("process", "started", "heard")
    list_per_page = 100
    actions = None
    fields = (
        "id",
        "process",
        "shown_state",
        "served",
        "slots",
        "scaled",
        "running_now",
        "stuck_threads",
        "troubles",
        "release",
        "version",
        "started",
        "heard",
    )
    readonly_fields = fields

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show the list without the sidebar."""
        return super().changelist_view(request, {"title": "Workers", "is_nav_sidebar_enabled": False, **(extra_context or {})})

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[WorkerChangeList]:
        """Return `WorkerChangeList`."""
        return WorkerChangeList

    @admin.display(description="running")
    def running_now(self, worker: Worker) -> str:
        """Return how many jobs it holds now, by their leases, because its own row is up to 10 s old."""
        number = getattr(worker, "held", None)
        return f"{running_jobs([str(worker.pk)]).get(str(worker.pk), 0) if number is None else number:,}"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Worker]:
        """Return the workers with the database's time, against which their heartbeats are compared."""
        return super().get_queryset(request).annotate(now=Now())

    @admin.display(description="host : process", ordering="host")
    def process(self, worker: Worker) -> str:
        """Return its host and process."""
        return str(worker)

    @admin.display(description="state")
    def shown_state(self, worker: Worker) -> SafeString:
        """Return its state; "silent" if its last heartbeat is too old."""
        if (_now(worker) - worker.heartbeat_at).total_seconds() > HEARD_SECONDS:
            return columns.badge("silent", "Silent")
        return columns.badge(worker.shown_state.lower(), worker.shown_state.capitalize())

    @admin.display(description="queues")
    def served(self, worker: Worker) -> str:
        """Return the queues that it serves."""
        queues: Any = worker.queues
        return ", ".join(map(str, queues)) if isinstance(queues, list) and queues else "all"

    @admin.display(description="slots", ordering="slots")
    def shown_slots(self, worker: Worker) -> SafeString | str:
        """Return the number of its slots, and their last change; the tooltip shows the reason."""
        change = _change(worker)
        if change is None:
            return str(worker.slots)
        note = f"{change.moved}, {change.ago} ago"
        return format_html('{} <span class="jq-note" title="{}">{}</span>', worker.slots, change.why, note)

    @admin.display(description="last change of slots")
    def scaled(self, worker: Worker) -> SafeString | str:
        """Return the last change of its slots in full."""
        change = _change(worker)
        return NOTHING if change is None else f"{change.moved}, {change.ago} ago: {change.why}"

    @admin.display(description="stuck threads")
    def stuck_threads(self, worker: Worker) -> SafeString | str:
        """Return the number of abandoned threads, with emphasis if there are any."""
        return format_html('<strong class="jq-alarm">{}</strong>', worker.stuck) if worker.stuck else "0"

    @admin.display(description="services")
    def troubles(self, worker: Worker) -> SafeString | str:
        """Return the services that are stuck, with emphasis if there are any."""
        troubles = stuck_services(worker) + failed_modules(worker)
        return format_html('<strong class="jq-alarm">{}</strong>', "; ".join(troubles)) if troubles else "OK"

    @admin.display(description="started", ordering="started_at")
    def started(self, worker: Worker) -> SafeString:
        """Return when it started."""
        return moment(worker.started_at, _now(worker))

    @admin.display(description="last heartbeat", ordering="heartbeat_at")
    def heard(self, worker: Worker) -> str:
        """Return how long ago it last wrote its row."""
        return f"{between(worker.heartbeat_at, _now(worker))} ago"


class WorkerChangeList(ChangeList):
    """The list that counts the jobs of all workers of a page in one query."""

    def get_results(self, request: HttpRequest) -> None:
        """Fetch the page, and the number of jobs that each of its workers holds."""
        super().get_results(request)
        workers: list[Any] = list(self.result_list)
        counts = running_jobs(str(worker.pk) for worker in workers)
        for worker in workers:
            worker.held = counts.get(str(worker.pk), 0)
        self.result_list = workers


class Change(NamedTuple):
    """A change of slots as text."""

    moved: str
    ago: str
    why: str


def _change(worker: Worker) -> Change | None:
    """Return the last change of a worker's slots; None if there was none, or the row has unusable values."""
    scaling: Any = worker.scaling
    numbers = [scaling.get(name) for name in ("age", "before", "after", "running", "claimable")] if isinstance(scaling, dict) else []
    known = [number for number in numbers if isinstance(number, int | float)]
    if len(known) != 5:
        return None
    age, before, after, running, claimable = known
    ago = duration((_now(worker) - worker.heartbeat_at).total_seconds() + age)
    why = f"{scaling.get('why')} ({running:.0f} running, {claimable:.0f} claimable)"
    return Change(f"{before:.0f} \N{RIGHTWARDS ARROW} {after:.0f}", ago, why)


def _now(worker: Worker) -> datetime:
    now: datetime = getattr(worker, "now", None) or clock.now()
    return now
