"""The list of jobs, for tables of any size: newest first, without a full count, and with scans of a bounded part only.

A search by index covers the whole table: by number, by the statuses PAUSED, ERROR, CANCELED, RUNNING and QUEUED,
and by what PENDING jobs wait for. Other columns (task, queue) and SUCCESS have no index, because each index would
slow down all writes of all workers. These searches cover the newest `WINDOW` jobs and, by their partial indexes,
the older jobs whose status is not SUCCESS. The page reports this limit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.contrib.admin.views.main import ORDER_VAR, PAGE_VAR, SEARCH_VAR, ChangeList
from django.core.paginator import Page, Paginator
from django.db.models import QuerySet
from django.db.models.functions import Left
from django.http import HttpRequest
from django.utils.functional import cached_property
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from jobqueue import public_ids
from jobqueue.access import visible
from jobqueue.admin import figures, nothing
from jobqueue.admin.base import MAX_ID
from jobqueue.admin.columns import number, owner_of
from jobqueue.admin.filters import chip
from jobqueue.admin.labels import error_text
from jobqueue.admin.nothing import NothingFound
from jobqueue.core import masking
from jobqueue.core.search import Search, part_of
from jobqueue.core.texts import clean
from jobqueue.db import counting
from jobqueue.exceptions import InvalidSearch
from jobqueue.insight.arguments import with_small_arguments
from jobqueue.insight.index_orders import index_order
from jobqueue.insight.search import (
    FOUND_BY_INDEX,
    MAX_CHECKED,
    MAX_COUNTED,
    WINDOW,
    condition,
    found_by_index,
    newest_matching,
    older_open,
    parsed,
)
from jobqueue.models import Job, Worker

BIG_COLUMNS = ("args", "kwargs", "options", "metadata", "result", "history", "message", "webhook_url")

FILTERED_FIELDS = ("status", "waiting", "queue", "task", "target", "tenant")
CHIPS = (*FILTERED_FIELDS, "ended_within", "before")
MAX_MATCHED = 200  # jobs that a search reads and masks; the page offers to continue
_LANGUAGE = re.compile(r'[\s:="]')

if TYPE_CHECKING:
    BaseChangeList = ChangeList
    BasePaginator = Paginator[Job]
else:
    BaseChangeList, BasePaginator = ChangeList, Paginator


def searched(text: str) -> Search:
    """Return the conditions of the text in the search field; raise `InvalidSearch`."""
    job_id = as_id(text)
    return parsed(query_text(text)) if job_id is None else Search(job_id=job_id)


def query_text(text: str) -> str:
    """Return the text of a search; a single word is a part of the path of a task."""
    wanted = text.strip()
    return part_of("task", wanted) if wanted and not _LANGUAGE.search(wanted) and as_id(wanted) is None else wanted


def search(queryset: QuerySet[Job], text: str) -> QuerySet[Job]:
    """Return the jobs that meet a search by their stored values; none if the search is not valid."""
    try:
        return queryset.filter(condition(searched(text)))
    except InvalidSearch:
        return queryset.none()


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
    given = {field: params.get(field, "") for field in FILTERED_FIELDS}
    parts = [part_of(field, f"={value}" if field == "task" else value) for field, value in given.items() if value]
    seconds = params.get("ended_within", "")
    return " ".join(filter(None, [query_text(params.get(SEARCH_VAR, "")), *parts, f"ended:{seconds}s" if seconds else ""]))


class CappedPaginator(BasePaginator):
    """A paginator that counts up to `MAX_COUNTED`: a full count of a large table can take minutes."""

    @cached_property
    def counted(self) -> int:
        """Return the number of rows that were counted, at most `MAX_COUNTED` + 1."""
        rows: Any = self.object_list
        if (found := getattr(rows, "found", None)) is not None:
            return len(found)
        if (order := getattr(rows, "index_order", None)) is not None:
            return counting.count_in_order(Job.objects.database, rows.order_by(*order), MAX_COUNTED + 1)
        # In the list's own order, PostgreSQL reads the primary key's index from its newest end, and stops at the
        # limit.
        counted: int = rows.values("pk")[: MAX_COUNTED + 1].count()
        return counted

    def page(self, number: int | str) -> Any:
        """Return a page; of jobs that were found before, only those of the page are read."""
        rows: Any = self.object_list
        if not (found := getattr(rows, "found", None)):
            return super().page(number)
        first = self.per_page * (self.validate_number(number) - 1)
        return Page(rows.unfound.filter(pk__in=found[first:][: self.per_page]), self.validate_number(number), self)

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
    below: int | None = None  # the number below which "search further back" continues
    invalid = ""  # the error of the search
    conditions = Search()  # of the search field and the filters together
    counts_hidden_jobs = False  # whether an estimate of all rows counts jobs that the user may not see

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Job]:
        """Return the rows of the page."""
        self.counts_hidden_jobs = visible.is_narrowed(request.user)
        queryset: QuerySet[Job] = super().get_queryset(request, exclude_parameters)
        try:
            self.conditions = self._conditions()
        except InvalidSearch as error:
            self.invalid = error_text(error)
            queryset = queryset.none()
        found = None if self.invalid or not self._needs_scan() else self._scan(queryset)
        shown: Any = with_small_arguments(queryset).defer(*BIG_COLUMNS).annotate(brief=Left("message", 300))
        result: Any = shown if found is None else shown.filter(pk__in=found)
        result.found, result.unfound, result.index_order = found, shown, None if self.invalid else index_order(self.conditions)
        return result  # type: ignore[no-any-return]

    def _conditions(self) -> Search:
        job_id = as_id(self.query)
        found = parsed(query_of({**self.params, SEARCH_VAR: "" if job_id is not None else self.query}))
        return found if job_id is None else replace(found, job_id=job_id)

    def _needs_scan(self) -> bool:
        conditions = self.conditions
        if conditions.reads_masked:
            return conditions.job_id is None
        by_status = conditions.texts.get("status") in FOUND_BY_INDEX and not {"target", "worker", "release"} & {*conditions.texts}
        return conditions != Search() and not by_status and not found_by_index(conditions)

    def _scan(self, queryset: QuerySet[Job]) -> list[int] | None:
        """Return the jobs of the newest `WINDOW`, and the open jobs of any age; None if that is all jobs."""
        newest = self.root_queryset.order_by("-pk").values_list("pk", flat=True).first() or 0
        before = min(newest, (as_id(self.params.get("before", "")) or MAX_ID) - 1) - WINDOW
        self.newest_only = before > 0
        recent = queryset.filter(pk__gt=before) if self.newest_only else queryset
        if self.conditions.reads_masked:
            found = newest_matching(recent, self.conditions, MAX_MATCHED + 1)
            self.below = found[MAX_MATCHED - 1] if len(found) > MAX_MATCHED else before + 1 if self.newest_only else None
            return found[:MAX_MATCHED]
        if not self.newest_only:
            return None
        self.below = before + 1
        order, most = ("pk" if self.is_oldest_first else "-pk"), MAX_COUNTED + 1
        ids = list(recent.order_by(order).values_list("pk", flat=True)[:most])
        if (len(ids) == most and not self.is_oldest_first) or not self._finds_older:
            return ids
        older, self.unchecked = older_open(self.conditions, before, MAX_CHECKED)
        seen = queryset.filter(pk__in=sorted(older, reverse=True)[:most]).values_list("pk", flat=True) if older else ()
        return sorted({*seen, *ids}, reverse=not self.is_oldest_first)[:most]

    @property
    def _finds_older(self) -> bool:
        """Whether older open jobs are found by their index and few columns."""
        conditions = self.conditions
        return not (conditions.times or conditions.reads_masked or {"worker", "release", "kind"} & {*conditions.texts})

    @property
    def is_oldest_first(self) -> bool:
        """Whether the user has chosen to see the oldest jobs first."""
        return str(self.params.get(ORDER_VAR, "")).isdigit()

    @property
    def order_url(self) -> str:
        """The URL of the list in the other order."""
        at = next(at for at, column in enumerate(self.list_display) if column is number)
        return self.get_query_string({ORDER_VAR: f"-{at}" if self.is_oldest_first else str(at)}, [PAGE_VAR])

    @property
    def further_url(self) -> str:
        """The URL of the search among older jobs; empty if all were searched."""
        return self.get_query_string({"before": str(self.below)}, [PAGE_VAR]) if self.below is not None else ""

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
        if self.conditions.reads_masked and paginator.count >= MAX_MATCHED:
            return _("%(number)s+ jobs; only the newest %(number)s are listed") % {"number": figures.count(MAX_MATCHED)}
        if not paginator.more:
            return ngettext("%(number)s job", "%(number)s jobs", paginator.count) % {"number": figures.count(paginator.count)}
        narrowed = self.has_active_filters or self.query or self.counts_hidden_jobs
        estimate = None if narrowed else Job.objects.database.estimated_rows()
        most = figures.count(MAX_COUNTED)
        if estimate is None or estimate <= MAX_COUNTED:
            return _("%(number)s+ jobs; only the first %(number)s are listed") % {"number": most}
        about = _("about %(estimate)s jobs (the database's estimate); only the first %(number)s are listed")
        return about % {"estimate": figures.count(estimate), "number": most}

    @property
    def chips(self) -> list[tuple[str, str, str]]:
        """The chosen filters: the name, the value, and the URL of the list without it."""
        chosen = [(name, self.params[name]) for name in CHIPS if self.params.get(name)]
        return [(*chip(name, masking.mask_text(clean(value))), self.get_query_string(remove=[name])) for name, value in chosen]

    @cached_property
    def nothing_found(self) -> NothingFound | None:
        """Return the scope of the search, if a search or a filter found nothing."""
        if self.result_count or not (self.query or self.has_active_filters):
            return None
        wanted = self.query.strip()
        scope = _("%(window)s and the older open ones") % {"window": self._window} if self._finds_older else self._window
        return nothing.jobs(self, wanted, as_id(wanted), scope if self.newest_only else "", MAX_COUNTED)

    @property
    def _window(self) -> str:
        values = {"number": figures.count(WINDOW), "before": self.params.get("before")}
        return (_("the %(number)s jobs below %(before)s") if values["before"] else _("the newest %(number)s jobs")) % values

    @property
    def window_note(self) -> str:
        """The scope of the search; empty if it covered everything, or if the page shows it because nothing was found."""
        if not self.newest_only and self.below is None:
            return ""
        window = {"window": f"{self._window[0].upper()}{self._window[1:]}"}
        if self.conditions.reads_masked and self.result_count >= MAX_MATCHED:
            return _("The search stopped after %(number)s jobs.") % {"number": figures.count(MAX_MATCHED)}
        if not self._finds_older:
            return _("%(window)s were searched.") % window
        if self.params.get("target"):
            return _("%(window)s were searched, and those that hold the target or wait for it.") % window
        some = _("up to %(number)s older ones of each state") % {"number": figures.count(MAX_CHECKED)}
        older = some if self.unchecked else _("all older ones")
        text = _("%(window)s were searched, and %(older)s that are pending, queued, running, paused or in error.")
        return text % {**window, "older": older}


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
