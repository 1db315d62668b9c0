"""The pages of tasks: a list with the load of each, and a page of one task."""

from __future__ import annotations

import inspect
from datetime import datetime, timedelta
from typing import Any, Final

from django.contrib.admin.utils import unquote
from django.core.exceptions import BadRequest, PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.text import Truncator
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from jobqueue.admin import load_charts, load_page, new_job, task_choices
from jobqueue.admin.overview import data, rows
from jobqueue.admin.overview.page import RANGE, period_of
from jobqueue.admin.overview.view import OverviewAdmin
from jobqueue.admin.pages import Pages
from jobqueue.core import histograms, recent
from jobqueue.core.loads import TASK
from jobqueue.core.masking import mask_text
from jobqueue.core.texts import clean, shorten
from jobqueue.insight import open_jobs, samples
from jobqueue.insight.histories import Histories, add_histograms, totals
from jobqueue.models import Job, Queue, Schedule, Worker

SORT: Final = "sort"
SORTS: Final = {
    "time": gettext_lazy("run time"),
    "name": gettext_lazy("name"),
    "ended": gettext_lazy("ended"),
    "p95": gettext_lazy("run p95"),
    "wait": gettext_lazy("wait p95"),
    "failed": gettext_lazy("failed"),
}
LIST_RANGES: Final = ("1h", "24h")  # the histograms of all tasks over a fortnight would take seconds
MAX_UNUSED = 200
MAX_SHOWN = 10
MAX_DOC = 300


class TasksAdmin(OverviewAdmin):
    """The admin with the pages of tasks."""

    def get_urls(self) -> list[URLPattern]:
        """Add the pages."""
        wrap = self.admin_site.admin_view
        return [
            path("tasks/", wrap(self.tasks_view), name="jobqueue_job_tasks"),
            path("tasks/<path:task>/", wrap(self.task_view), name="jobqueue_job_task"),
            *super().get_urls(),
        ]

    def tasks_view(self, request: HttpRequest) -> HttpResponse:
        """Show the tasks that had jobs, with their load, and those that this process knows."""
        pages, period = self._begin(request), period_of(request)
        sort = request.GET.get(SORT, "time")
        if sort not in SORTS or period not in LIST_RANGES:
            rule = f"{SORT} must be one of {', '.join(SORTS)}, {RANGE} one of {', '.join(LIST_RANGES)}"
            raise BadRequest(f"{SORT} is {shorten(clean(sort), 40)!r}, {RANGE} is {period!r}; {rule}.")
        loads = _loads(period) if _may_see_loads(request, pages) else None
        known = [] if loads is None else sorted(loads.by_name.values(), key=_ORDERS[sort])
        run_seconds = sum(history.total.run_seconds for history in known)
        unused = [name for name in task_choices.paths() if loads is None or name not in loads.by_name]
        context = {
            "title": _("Tasks"),
            "tasks": rows.task_rows(pages, known, run_seconds),
            "sees_loads": loads is not None,
            "unused": [(mask_text(name), pages.url("jobqueue_job_task", name)) for name in unused[:MAX_UNUSED]],
            "ranges": [one for one in load_page.ranges(period, **{SORT: sort}) if one[0] in LIST_RANGES],
            "sorts": [(label, f"?{RANGE}={period}&{SORT}={name}", name == sort) for name, label in SORTS.items()],
        }
        return self._task_page(request, "tasks", context)

    def task_view(self, request: HttpRequest, task: str) -> HttpResponse:
        """Show one task."""
        pages, period, user = self._begin(request), period_of(request), request.user
        name = unquote(task)
        entry = None if "\0" in name else task_choices.entry(name)
        loads = load_page.load_of(TASK, name, period) if "\0" not in name and _may_see_loads(request, pages) else None
        kinds = [kind for kind in data.kinds(user) if kind.task == name]
        schedules: Any = (
            Schedule.objects.current.filter(task=name).order_by("name") if pages.may_view(Schedule) and "\0" not in name else []
        )
        if entry is None and not kinds and not schedules and (loads is None or not loads.by_name):
            raise Http404(_("No task of this name is known here, and none has had a job in this range."))
        context: dict[str, Any] = {
            "title": mask_text(name),
            "name": mask_text(name),
            "facts": [] if entry is None else _facts(entry.task),
            "signature": "" if entry is None else task_choices.signature(entry.func),
            "doc": "" if entry is None else _doc(entry.func),
            "kinds": rows.kind_rows(pages, kinds[:MAX_SHOWN]),
            "schedules": [
                (str(row), pages.url("jobqueue_schedule_change", row.pk), row.next_at, row.active) for row in schedules[:MAX_SHOWN]
            ],
            "running": load_page.job_rows(request, open_jobs.running({"task": name}, user, MAX_SHOWN)),
            "jobs_url": pages.jobs(task=name),
            "new_url": pages.url("jobqueue_job_task_new", name) if new_job.may_enqueue(request, entry) else "",
        }
        if loads is not None:
            members = data.members() if pages.may_view(Worker) else None
            context |= load_page.context(loads, name, period, load_charts.marks(loads, members, []))
        return self._task_page(request, "task", context)

    def _begin(self, request: HttpRequest) -> Pages:
        if request.method not in ("GET", "HEAD") or not self.has_view_permission(request):
            raise PermissionDenied
        request.current_app = self.admin_site.name
        return Pages(request)

    def _task_page(self, request: HttpRequest, template: str, context: dict[str, Any]) -> HttpResponse:
        shared = {**self.admin_site.each_context(request), "is_nav_sidebar_enabled": False, "opts": self.opts, "media": self.media}
        return TemplateResponse(request, f"jobqueue/admin/{template}.html", {**shared, **context})


def _may_see_loads(request: HttpRequest, pages: Pages) -> bool:
    return pages.may_view(Queue) and samples.may_see(request.user)


def _loads(period: str) -> Histories:
    def read() -> Histories:
        found = totals(TASK, period)
        add_histograms(TASK, period, [*found.by_name.values()], end=found.end)
        return found

    return recent.kept(("tasks", Job.objects.database.scope, period), data.SLOW_SECONDS, read)


def _quantile(counts: list[int]) -> float:
    return histograms.quantile(counts, 0.95) or 0.0


_ORDERS: Final[dict[str, Any]] = {
    "time": lambda history: (-history.total.run_seconds, history.name),
    "name": lambda history: history.name,
    "ended": lambda history: (-history.total.ended, history.name),
    "p95": lambda history: (-_quantile(history.total.runs), history.name),
    "wait": lambda history: (-_quantile(history.total.waits), history.name),
    "failed": lambda history: (-(history.total.failed / max(history.total.ended, 1)), history.name),
}


def _schedules(pages: Pages, task: str) -> list[tuple[str, str, datetime | None, bool]]:
    """Return the schedules of a task: name, URL, next time, and whether each is active."""
    if not pages.may_view(Schedule):
        return []
    found: Any = Schedule.objects.current.filter(task=task).order_by("name")[:MAX_SHOWN]
    return [(str(row), pages.url("jobqueue_schedule_change", row.pk), row.next_at, row.active) for row in found]


def _doc(func: Any) -> str:
    return Truncator(mask_text(inspect.getdoc(func) or "").partition("\n\n")[0]).chars(MAX_DOC)


def _facts(task: Any) -> list[tuple[str, str]]:
    """Return the options with which a task is declared, unless they are the defaults."""
    backoff = getattr(task, "backoff", None)
    facts = [
        (_("Queue"), mask_text(str(task.queue_name))),
        (_("Priority"), task.priority or None),
        (_("Attempts"), getattr(task, "max_attempts", None)),
        (_("Back-off"), None if backoff is None or getattr(task, "max_attempts", 1) == 1 else getattr(backoff, "__name__", str(backoff))),
        (_("Time limit"), _span(getattr(task, "timeout", None))),
        (_("Expires"), _span(getattr(task, "expires", None))),
        (_("Transactional"), _("yes") if getattr(task, "transactional", False) else None),
        (_("Phases"), ", ".join(phase.name for phase in getattr(task, "phases", ())) or None),
    ]
    return [(name, str(value)) for name, value in facts if value is not None]


def _span(value: Any) -> str | None:
    if value is None:
        return None
    return str(value) if isinstance(value, timedelta) or not isinstance(value, int | float) else f"{value:g} s"
