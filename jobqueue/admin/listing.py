"""The list of jobs, for tables of any size: newest first, without a full count, and with scans of a bounded part only.

A search by index covers the whole table: by number, by the statuses PAUSED, ERROR, CANCELED, RUNNING and QUEUED,
and by what PENDING jobs wait for. Other columns (task, queue) and SUCCESS have no index, because each index would
slow down all writes of all workers. These searches cover the newest `WINDOW` jobs and, by their partial indexes,
the older jobs whose status is not SUCCESS. The page reports this limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.contrib.admin.views.main import SEARCH_VAR, ChangeList
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.db.models.functions import Left
from django.http import HttpRequest
from django.utils.functional import cached_property

from jobqueue import public_ids
from jobqueue.access import visible
from jobqueue.admin import nothing
from jobqueue.admin.base import MAX_ID
from jobqueue.admin.columns import owner_of
from jobqueue.admin.nothing import NothingFound
from jobqueue.core import masking, states
from jobqueue.core.search import part_of
from jobqueue.core.texts import clean
from jobqueue.db import open_jobs as open_jobs_sql
from jobqueue.db.open_jobs import OPEN
from jobqueue.insight.search import FOUND_BY_INDEX, MAX_CHECKED, MAX_COUNTED, WINDOW, in_line, tasks_like
from jobqueue.models import Job, Worker

BIG_COLUMNS = ("args", "kwargs", "options", "metadata", "result", "history", "message", "webhook_url")

# The fields of the search language by the parameters of the filters.
FIELDS_OF_FILTERS = {"status": "status", "waiting": "waiting", "queue": "queue", "task": "task", "target": "target", "tenant": "tenant"}

if TYPE_CHECKING:
    BaseChangeList = ChangeList
    BasePaginator = Paginator[Job]
else:
    BaseChangeList, BasePaginator = ChangeList, Paginator


def search(queryset: QuerySet[Job], text: str) -> QuerySet[Job]:
    """Return the job with this number; otherwise those whose task's path is this text, or a registered path that contains it."""
    wanted = text.strip()
    if not wanted:
        return queryset
    if (job_id := as_id(wanted)) is not None:
        return queryset.filter(pk=job_id)  # a number that the column cannot store matches nothing; Django handles that
    return queryset.filter(task__in=tasks_like(wanted))


def as_id(text: str) -> int | None:
    """Return the number for "12", "#12" or a public id, None for any other text; at most `MAX_ID` + 1."""
    digits = text.strip().removeprefix("#")
    if (job_id := public_ids.job_id_of(digits)) is not None:
        return job_id
    if not (digits.isascii() and digits.isdigit()):
        return None
    digits = digits.lstrip("0") or "0"
    return min(int(digits), MAX_ID + 1) if len(digits) < 20 else MAX_ID + 1


def query_of(params: Mapping[str, str]) -> str:
    """Return the search that finds the jobs of a list with these parameters of its URL."""
    given = {field: params.get(name, "") for name, field in FIELDS_OF_FILTERS.items()}
    parts = [part_of(field, f"={value}" if field == "task" else value) for field, value in given.items() if value]
    seconds = params.get("ended_within", "")
    return " ".join([params.get(SEARCH_VAR, "").strip(), *parts, *([f"ended:{seconds}s"] if seconds else [])]).strip()


class CappedPaginator(BasePaginator):
    """A paginator that counts up to `MAX_COUNTED`: a full count of a large table can take minutes."""

    @cached_property
    def counted(self) -> int:
        """Return the number of rows that were counted, at most `MAX_COUNTED` + 1."""
        rows: Any = self.object_list
        # In the list's own order, PostgreSQL reads the primary key's index from its newest end, and stops at the
        # limit.
        number: int = rows.values("pk")[: MAX_COUNTED + 1].count()
        return number

    @property
    def count(self) -> int:
        """The number of rows on the pages."""
        return min(self.counted, MAX_COUNTED)

    @property
    def more(self) -> bool:
        """Whether there are rows after the last page."""
        return self.counted > MAX_COUNTED


class JobChangeList(BaseChangeList):
    """The list without the big columns; the workers of each page are read in one query."""

    newest_only = False
    unchecked = False
    counts_hidden_jobs = False  # whether an estimate of all rows counts jobs that the user may not see

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Job]:
        """Return the rows of the page."""
        self.counts_hidden_jobs = visible.is_narrowed(request.user)
        queryset: QuerySet[Job] = super().get_queryset(request, exclude_parameters)
        if self._needs_scan():
            newest = self.root_queryset.order_by("-pk").values_list("pk", flat=True).first() or 0
            self.newest_only = newest > WINDOW
            if self.newest_only:
                queryset = self._within_window(queryset, newest - WINDOW)
        return queryset.defer(*BIG_COLUMNS).annotate(brief=Left("message", 300))

    def _within_window(self, queryset: QuerySet[Job], before: int) -> QuerySet[Job]:
        """Return the rows that are among the newest jobs, and the open jobs of any age."""
        recent = queryset.filter(pk__gt=before)
        if "\0" in "".join([*self.params.values(), self.query]):
            return recent
        older = in_line(self.params["target"], self.params.get("tenant")) if self.params.get("target") else self._open(before)
        if not older:
            return recent
        seen = recent.order_by("-pk").values_list("pk", flat=True)[: MAX_COUNTED + 1]
        return queryset.filter(pk__in={*older, *seen})

    def _open(self, before: int) -> list[int]:
        """Return the newest of the open jobs outside of the window that the filters select."""
        wanted = {column: [self.params[column]] for column in ("queue", "task", "tenant") if self.params.get(column)}
        if text := self.query.strip():
            wanted["task"] = tasks_like(text)
        status = self.params.get("status")
        if self.params.get("ended_within"):
            status = status or states.Status.ERROR  # of the states in `OPEN`, only this one has a time of the end
        statuses = list(OPEN) if not status else [status]
        ids, self.unchecked = open_jobs_sql.open_jobs(Job.objects.database, statuses, before, wanted, MAX_CHECKED)
        return sorted(ids, reverse=True)[: MAX_COUNTED + 1]

    def _needs_scan(self) -> bool:
        filters = {name: self.params.get(name) for name in ("status", "waiting", "queue", "task", "target", "tenant", "ended_within")}
        text = self.query.strip()
        by_index = filters["status"] in FOUND_BY_INDEX and not filters["target"]
        if (text and as_id(text) is not None) or by_index or filters["waiting"] in states.WaitingFor.values:
            return False
        return bool(text) or any(filters.values())

    def get_results(self, request: HttpRequest) -> None:
        """Fetch the page, and the workers of its jobs."""
        super().get_results(request)
        jobs: list[Any] = list(self.result_list)
        workers = workers_of(jobs)
        for job in jobs:
            job.worker = workers.get(owner_of(job))
        self.result_list = jobs

    @property
    def summary(self) -> str:
        """The number of jobs; above `MAX_COUNTED` only a lower bound or an estimate, because counting is expensive."""
        paginator: Any = self.paginator
        noun = "job" if paginator.count == 1 else "jobs"
        if not paginator.more:
            return f"{paginator.count:,} {noun}"
        narrowed = self.has_active_filters or self.query or self.counts_hidden_jobs
        estimate = None if narrowed else Job.objects.database.estimated_rows()
        if estimate is None or estimate <= MAX_COUNTED:
            return f"{MAX_COUNTED:,}+ jobs; only the first {MAX_COUNTED:,} are listed"
        return f"about {estimate:,} jobs (the database's estimate); only the first {MAX_COUNTED:,} are listed"

    @property
    def chips(self) -> list[tuple[str, str, str]]:
        """The target and the tenant of the filter: the name, the value, and the URL of the list without it."""
        chosen = [(name, self.params[name]) for name in ("target", "tenant") if self.params.get(name)]
        return [(name, masking.mask_text(clean(value)), self.get_query_string(remove=[name])) for name, value in chosen]

    @cached_property
    def nothing_found(self) -> NothingFound | None:
        """Return the scope of the search, if a search or a filter found nothing."""
        if self.result_count or not (self.query or self.has_active_filters):
            return None
        wanted = self.query.strip()
        scope = f"the newest {WINDOW:,} jobs and the older open ones" if self.newest_only else ""
        return nothing.jobs(self, wanted, as_id(wanted), scope, MAX_COUNTED)

    @property
    def window_note(self) -> str:
        """The scope of the search; empty if it covered everything, or if the page shows it because nothing was found."""
        if not self.newest_only:
            return ""
        if self.params.get("target"):
            return f"The newest {WINDOW:,} jobs were searched, and those that hold the target or wait for it."
        older = f"up to {MAX_CHECKED:,} older ones of each state" if self.unchecked else "all older ones"
        return f"The newest {WINDOW:,} jobs were searched, and {older} that are pending, queued, running, paused or in error."


def has_nul(request: HttpRequest) -> bool:
    """Return whether the search text has a NUL, which no stored text has (Django's form would ignore the search)."""
    return "\0" in request.GET.get(SEARCH_VAR, "")


def workers_of(jobs: list[Job]) -> dict[str, Worker]:
    """Return the known workers of some jobs by their identity, with one query."""
    wanted = {parsed for job in jobs if (parsed := _as_uuid(owner_of(job))) is not None}
    return {str(worker.pk): worker for worker in Worker.objects.filter(pk__in=wanted)} if wanted else {}


def _as_uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
