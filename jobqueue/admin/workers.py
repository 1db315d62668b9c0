"""The admin of `Worker`: the worker processes by release, with those whose heartbeats stopped and those that left."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.contrib import admin, messages
from django.contrib.admin.utils import quote, unquote
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils.decorators import method_decorator
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _lazy

from jobqueue import clock
from jobqueue.access import audit
from jobqueue.admin import columns, figures
from jobqueue.admin.base import ReadOnlyAdmin, audited
from jobqueue.admin.formatting import NOTHING, between, duration, moment
from jobqueue.admin.labels import error_text, translated
from jobqueue.db import Now
from jobqueue.exceptions import WorkerDoesNotExist
from jobqueue.insight.worker_page import MAX_JOBS, Departed, duties_of, jobs_of, left_workers, releases, stuck_of
from jobqueue.insight.workers import HEARD_SECONDS, failed_modules, running_jobs, stuck_services
from jobqueue.lifecycle.workers import drain_worker
from jobqueue.models import Job, LeftWorker, Worker

VERBS: Final = {"drain": _lazy("Drain"), "undrain": _lazy("Undrain")}


@method_decorator(transaction.non_atomic_requests, name="drain_view")
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
    ordering = ("release", "-heartbeat_at")
    list_per_page = 100
    actions = None
    change_list_template = "jobqueue/admin/workers.html"
    change_form_template = "jobqueue/admin/worker.html"
    fields = (
        "id",
        "process",
        "shown_state",
        "served",
        "slots",
        "scaled",
        "running_now",
        "stuck_threads",
        "memory",
        "troubles",
        "duties",
        "release",
        "version",
        "started",
        "heard",
    )
    readonly_fields = fields

    def has_drain_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may drain workers."""
        return request.user.has_perm("jobqueue.drain_worker")

    def get_urls(self) -> list[URLPattern]:
        """Add the URLs of the buttons."""
        view = self.admin_site.admin_view(self.drain_view)
        urls = [path(f"<uuid:worker_id>/{verb}/", view, {"verb": verb}, name=f"jobqueue_worker_{verb}") for verb in VERBS]
        return [*urls, *super().get_urls()]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show the list without the sidebar, the releases above it, and the workers that left below it."""
        more = {"title": _("Workers"), "is_nav_sidebar_enabled": False, "releases": releases(), "left": _left()}
        return super().changelist_view(request, {**more, **(extra_context or {})})

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show one worker, with its jobs and its buttons."""
        worker = self.get_object(request, unquote(object_id))
        more: dict[str, Any] = {"is_nav_sidebar_enabled": False}
        if worker is not None and self.has_view_permission(request, worker):
            may_see_jobs = request.user.has_perm("jobqueue.view_job")
            jobs = {"jobs": jobs_of(request.user, worker), "stuck": stuck_of(request.user, worker)} if may_see_jobs else {}
            verb = "undrain" if worker.drain_requested else "drain"
            button = (verb, VERBS[verb]) if self.has_drain_permission(request) and worker.state == Worker.State.RUNNING else None
            more |= {
                **jobs,
                "may_see_jobs": may_see_jobs,
                "most": MAX_JOBS,
                "button": button,
                "title": _("Worker"),
                "subtitle": str(worker),
            }
        return super().change_view(request, object_id, form_url, {**more, **(extra_context or {})})

    @audited
    def drain_view(self, request: HttpRequest, worker_id: UUID, verb: str) -> HttpResponse:
        """Drain a worker or end its drain, by POST; a GET (as after a login) only redirects to its page."""
        worker = self.get_object(request, str(worker_id))
        if not self.has_view_permission(request, worker) or not self.has_drain_permission(request):
            raise PermissionDenied
        if worker is None:
            if request.method == "POST":
                self.log_missing(request, verb, [f"worker {worker_id}"])
            self.message_user(request, _("The worker has left."), messages.WARNING)
            return HttpResponseRedirect(reverse("admin:jobqueue_worker_changelist", current_app=self.admin_site.name))
        if request.method == "POST":
            self._drain(request, worker, verb)
        return HttpResponseRedirect(reverse("admin:jobqueue_worker_change", args=[worker.pk], current_app=self.admin_site.name))

    def _drain(self, request: HttpRequest, worker: Worker, verb: str) -> None:
        # The change and its record are committed together.
        with Job.objects.database.atomic():
            try:
                answer = drain_worker(str(worker.pk), drained=verb == "drain")
            except WorkerDoesNotExist as error:  # it has left since
                self.log_refusal(request, worker, verb, str(error))
                self.message_user(request, error_text(error), messages.WARNING)
                return
            if answer.changed:
                text = "Drained." if answer.drained else "Made to start jobs again."
                audit.record(request.user, verb, worker, audit.DONE, audit.address_of(request), text=text)
        if answer.drained:
            text = _("Worker %(name)s is drained: it starts no more jobs, and its running jobs continue.")
        else:
            text = _("Worker %(name)s is not drained: it starts jobs.")
        self.message_user(request, text % {"name": worker}, messages.SUCCESS if answer.changed else messages.INFO)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[WorkerChangeList]:
        """Return `WorkerChangeList`."""
        return WorkerChangeList

    @admin.display(description=_lazy("running"))
    def running_now(self, worker: Worker) -> str:
        """Return how many jobs it holds now, by their leases, because its own row is up to 10 s old."""
        number = getattr(worker, "held", None)
        return f"{running_jobs([str(worker.pk)]).get(str(worker.pk), 0) if number is None else number:,}"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Worker]:
        """Return the workers with the database's time, against which their heartbeats are compared."""
        return super().get_queryset(request).annotate(now=Now())

    @admin.display(description=_lazy("host : process"), ordering="host")
    def process(self, worker: Worker) -> SafeString:
        """Return its host and process."""
        return format_html("<bdi>{}</bdi>", worker)

    @admin.display(description=_lazy("state"))
    def shown_state(self, worker: Worker) -> SafeString:
        """Return its state; "silent" if its last heartbeat is too old."""
        if (_now(worker) - worker.heartbeat_at).total_seconds() > HEARD_SECONDS:
            return columns.badge("silent", _("Silent"))
        return columns.badge(worker.shown_state.lower(), translated(worker.shown_state.capitalize()))

    @admin.display(description=_lazy("queues"))
    def served(self, worker: Worker) -> str:
        """Return the queues that it serves."""
        queues: Any = worker.queues
        return ", ".join(map(str, queues)) if isinstance(queues, list) and queues else _("all")

    @admin.display(description=_lazy("slots"), ordering="slots")
    def shown_slots(self, worker: Worker) -> SafeString | str:
        """Return the number of its slots, and their last change; the tooltip shows the reason."""
        change = _change(worker)
        if change is None:
            return str(worker.slots)
        note = f"{change.moved}, {change.ago}"
        return format_html('{} <span class="jq-note" title="{}">{}</span>', worker.slots, change.why, note)

    @admin.display(description=_lazy("last change of slots"))
    def scaled(self, worker: Worker) -> SafeString | str:
        """Return the last change of its slots in full."""
        change = _change(worker)
        return NOTHING if change is None else f"{change.moved}, {change.ago}: {change.why}"

    @admin.display(description=_lazy("stuck threads"))
    def stuck_threads(self, worker: Worker) -> SafeString | str:
        """Return the number of abandoned threads, with emphasis if there are any."""
        return format_html('<strong class="jq-alarm">{}</strong>', worker.stuck) if worker.stuck else "0"

    @admin.display(description=_lazy("memory"))
    def memory(self, worker: Worker) -> str:
        """Return the memory of its process."""
        return f"{figures.count(worker.memory_mb)} MB" if worker.memory_mb else NOTHING

    @admin.display(description=_lazy("leads the duties"))
    def duties(self, worker: Worker) -> SafeString | str:
        """Return the duties that it leads, as links."""
        links = [(reverse("admin:jobqueue_backgroundjoblease_change", args=[quote(name)]), name) for name in duties_of(worker)]
        return format_html_join(", ", '<a href="{}"><bdi>{}</bdi></a>', links) or NOTHING

    @admin.display(description=_lazy("services"))
    def troubles(self, worker: Worker) -> SafeString | str:
        """Return the services that are stuck, with emphasis if there are any."""
        troubles = stuck_services(worker) + failed_modules(worker)
        return format_html('<strong class="jq-alarm">{}</strong>', "; ".join(map(translated, troubles))) if troubles else _("OK")

    @admin.display(description=_lazy("started"), ordering="started_at")
    def started(self, worker: Worker) -> SafeString:
        """Return when it started."""
        return moment(worker.started_at, _now(worker))

    @admin.display(description=_lazy("last heartbeat"), ordering="heartbeat_at")
    def heard(self, worker: Worker) -> str:
        """Return how long ago it last wrote its row."""
        return _("%(duration)s ago") % {"duration": between(worker.heartbeat_at, _now(worker))}


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


@dataclass(frozen=True, slots=True)
class LeftRow:
    """A worker that left, on the page."""

    worker: Departed
    how: Any
    ran: str
    ago: SafeString


def _left() -> list[LeftRow]:
    """Return the workers that left, the last first."""
    now, labels = clock.now(), dict(LeftWorker.How.choices)
    return [
        LeftRow(one, translated(labels.get(one.how, one.how)), between(one.started_at, one.left_at), moment(one.left_at, now))
        for one in left_workers()
    ]


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
    ago = _("%(duration)s ago") % {"duration": duration((_now(worker) - worker.heartbeat_at).total_seconds() + age)}
    counts = {"why": scaling.get("why"), "running": f"{running:.0f}", "claimable": f"{claimable:.0f}"}
    why = _("%(why)s (%(running)s running, %(claimable)s claimable)") % counts
    return Change(f"{before:.0f} \N{RIGHTWARDS ARROW} {after:.0f}", ago, why)


def _now(worker: Worker) -> datetime:
    now: datetime = getattr(worker, "now", None) or clock.now()
    return now
