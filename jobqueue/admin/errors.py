"""The pages of errors: the kinds of errors of the jobs in ERROR, and one kind with its newest traceback, runs and jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlencode

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from jobqueue.access.hiding import mask_of
from jobqueue.admin import columns, listing
from jobqueue.admin.bulk import BulkAdmin
from jobqueue.admin.formatting import NOTHING, ago, prose
from jobqueue.admin.job_runs import TRACEBACK_CHARACTERS
from jobqueue.admin.verbs import CANCEL, RESUME
from jobqueue.core.amounts import bounded
from jobqueue.core.json_columns import as_dict
from jobqueue.core.masking import mask_text
from jobqueue.core.search import part_of
from jobqueue.db import overview
from jobqueue.insight import arguments
from jobqueue.insight.error_kinds import MAX_KINDS, ErrorKind, blocked_lines, error_kinds_for, error_kinds_of, kind_runs
from jobqueue.models import Job

MAX_SHOWN: Final = 100
MAX_RUNS: Final = 200  # of a kind, whose workers, releases and arguments are counted
MAX_JOBS: Final = 20
MAX_VALUES: Final = 10
RANGES: Final = (
    ("", gettext_lazy("All"), 0),
    ("14d", gettext_lazy("Last 14 days"), 14 * 86_400),
    ("24h", gettext_lazy("Last 24 hours"), 86_400),
    ("1h", gettext_lazy("Last hour"), 3600),
)
ORDERS: Final = (("last", gettext_lazy("Last first")), ("most", gettext_lazy("Most first")))


@dataclass(frozen=True, slots=True)
class KindRow:
    """One kind of error; each URL is empty if there is no such page for the user."""

    kind: ErrorKind
    url: str
    exception: str
    message: str
    task: str
    task_name: str
    number: str
    in_last_hour: str
    in_last_day: str
    first: SafeString | str
    last: SafeString | str
    lines: int
    jobs_url: str
    hour_url: str
    day_url: str
    retry_url: str
    cancel_url: str


class ErrorsAdmin(BulkAdmin):
    """The admin with the pages of errors."""

    def get_urls(self) -> list[URLPattern]:
        """Add the pages."""
        wrap = self.admin_site.admin_view
        return [
            path("errors/", wrap(self.errors_view), name="jobqueue_job_errors"),
            path("errors/<slug:key>/", wrap(self.error_kind_view), name="jobqueue_job_error"),
            *super().get_urls(),
        ]

    def errors_view(self, request: HttpRequest) -> HttpResponse:
        """Show the kinds of errors."""
        if request.method not in ("GET", "HEAD") or not self.has_view_permission(request):
            raise PermissionDenied
        chosen = next((entry for entry in RANGES if entry[0] == request.GET.get("range", "")), RANGES[0])
        order = next((name for name, _label in ORDERS if name == request.GET.get("sort")), ORDERS[0][0])
        now = overview.clock(Job.objects.database)
        found = self._kinds(request)
        kinds = [
            kind for kind in found if not chosen[2] or (kind.last_at is not None and (now - kind.last_at).total_seconds() <= chosen[2])
        ]
        if order == "last":
            kinds.sort(key=lambda kind: (kind.last_at is not None, kind.last_at), reverse=True)
        lines = blocked_lines(self.get_queryset(request)) if kinds else {}
        context = {
            "title": _("Errors"),
            "kinds": [self._kind_row(request, kind, now, len(lines.get(kind.key, ()))) for kind in kinds[:MAX_SHOWN]],
            "more": len(kinds) > MAX_SHOWN,
            "shown": MAX_SHOWN,
            "total": bounded(len(kinds), len(found) >= MAX_KINDS),
            "any": bool(found),
            "ranges": [(label, f"?{urlencode({'range': name, 'sort': order})}", name == chosen[0]) for name, label, _seconds in RANGES],
            "orders": [(label, f"?{urlencode({'range': chosen[0], 'sort': name})}", name == order) for name, label in ORDERS],
        }
        return self._page_of(request, "errors", context)

    def error_kind_view(self, request: HttpRequest, key: str) -> HttpResponse:
        """Show one kind of error."""
        if request.method not in ("GET", "HEAD") or not self.has_view_permission(request):
            raise PermissionDenied
        jobs = self.get_queryset(request)
        runs = kind_runs(jobs, key, MAX_RUNS)
        kind = next((one for one in self._kinds(request) if one.key == key), None) if runs.jobs else None
        context: dict[str, Any] = {"title": _("Error"), "key": key, "row": None, "errors_url": self._page("errors")}
        if kind is not None:
            now = overview.clock(Job.objects.database)
            newest = jobs.filter(pk=runs.jobs[0].pk).first() or runs.jobs[0]
            lines = blocked_lines(jobs).get(key, [])
            row = self._kind_row(request, kind, now, len(lines))
            context |= {
                "title": row.exception or row.task_name,
                "row": row,
                "newest": newest,
                "traceback": _traceback(newest),
                "counted": len(runs.jobs),
                "tables": self._kind_tables(kind, runs.jobs, runs.releases),
                "lines": [(job, *self._blocked_line(job)) for job in lines],
                "jobs": [self._kind_job(job, now) for job in runs.jobs[:MAX_JOBS]],
            }
        return self._page_of(request, "error_kind", context)

    def _kinds(self, request: HttpRequest) -> list[ErrorKind]:
        return error_kinds_for(request.user) if self.sees_as_bulk(request) else error_kinds_of(self.get_queryset(request))

    def _kind_row(self, request: HttpRequest, kind: ErrorKind, now: datetime, lines: int) -> KindRow:
        query = query_of(kind.key)
        capped = kind.number_is_capped
        return KindRow(
            kind=kind,
            url=self._page("error", kind.key) if kind.key.isalnum() else "",
            exception=mask_text(kind.exception).rpartition(".")[2],
            message=kind.message.strip().partition("\n")[0][:300],
            task=mask_text(kind.task),
            task_name=mask_text(kind.task).rpartition(".")[2],
            number=bounded(kind.number, capped),
            in_last_hour=bounded(kind.in_last_hour, capped and kind.in_last_hour == kind.number),
            in_last_day=bounded(kind.in_last_day, capped and kind.in_last_day == kind.number),
            first=ago(kind.first_at, now) if kind.first_at is not None else NOTHING,
            last=ago(kind.last_at, now) if kind.last_at is not None else NOTHING,
            lines=lines,
            jobs_url=self._search_url(query),
            hour_url=self._search_url(f"{query} ended:1h"),
            day_url=self._search_url(f"{query} ended:24h"),
            retry_url=self.bulk_url(request, RESUME, query),
            cancel_url=self.bulk_url(request, CANCEL, query),
        )

    def _kind_tables(self, kind: ErrorKind, jobs: list[Job], releases: dict[int, str]) -> list[tuple[str, list[tuple[str, str, int]]]]:
        """Return the most frequent workers, releases and values of arguments, each with the URL of a search and a share in percent."""
        workers = listing.workers_of(jobs)
        processes = Counter(str(workers.get(owner) or "") for owner in map(columns.owner_of, jobs))
        tables = {
            _("Workers"): [(name, part_of("worker", name), number) for name, number in processes.most_common(MAX_VALUES) if name],
            _("Releases"): [
                (name, part_of("release", name), number) for name, number in Counter(releases.values()).most_common(MAX_VALUES) if name
            ],
            _("Arguments"): [
                (f"{name}={value}", f"{name}={value}", number) for name, value, number in arguments.frequent(jobs, MAX_VALUES)
            ],
        }
        return [
            (title, [(mask_text(text), self._safe_url(kind, part), round(100 * number / len(jobs))) for text, part, number in rows])
            for title, rows in tables.items()
            if rows
        ]

    def _safe_url(self, kind: ErrorKind, part: str) -> str:
        return self._search_url(f"{query_of(kind.key)} {part}") if mask_text(part) == part else ""

    def _blocked_line(self, job: Job) -> tuple[str, str]:
        name = mask_text(job.target)
        return name, columns.jobs_of_target(job) if name == job.target and mask_text(job.tenant) == job.tenant else ""

    def _kind_job(self, job: Job, now: datetime) -> tuple[Any, ...]:
        when = ago(job.finished_at, now) if job.finished_at is not None else NOTHING
        return job, arguments.brief(job), when, columns.attempt(job), columns.queue(job)

    def _search_url(self, query: str) -> str:
        return f"{self._page('changelist')}?{urlencode({'q': query})}"


def query_of(key: str) -> str:
    """Return the search that finds the jobs in ERROR with a kind of error."""
    return f"status:ERROR {part_of('kind', key)}"


def _traceback(job: Job) -> str:
    """Return the traceback of a job's last run that did not succeed, or its message."""
    entries: Iterable[Any] = reversed(job.history if isinstance(job.history, list) else [])
    text = next((entry["traceback"] for entry in entries if as_dict(entry).get("traceback")), "")
    return prose(text or job.message, TRACEBACK_CHARACTERS, mask_of(job))
