"""The tabs on every page of the app's admin. To add one, add a line to `TABS`.

A tab is shown if its page exists on the site, and the user may view it. Its number is counted up to `MAX_COUNTED`; the
numbers of all tabs are one statement, whose result a process keeps for `KEPT_SECONDS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from jobqueue.access import visible
from jobqueue.admin.pages import OVERVIEW, Pages
from jobqueue.core import recent, states
from jobqueue.core.amounts import bounded
from jobqueue.db import counting
from jobqueue.insight.workers import alive
from jobqueue.models import AuditRecord, Job, Queue, Schedule, WebhookDelivery, Worker

MAX_COUNTED = 10_000
KEPT_SECONDS = 3.0

Rows = Callable[[HttpRequest], QuerySet[Any]]


@dataclass(frozen=True, slots=True)
class Tab:
    """A tab: its name, the name of its page's URL, and the model that the user must be allowed to view.

    `pages` are the beginnings of the names of further URLs whose pages show this tab as the current one; the longest
    beginning wins. `rows` returns the query whose rows are counted, and `counted` says what they are.
    """

    label: Promise
    page: str
    model: type[Model]
    key: str  # after "g", it goes to the tab
    pages: tuple[str, ...] = ()
    rows: Rows | None = None
    counted: Promise | str = ""
    permission: str = ""  # that the user needs as well
    others: tuple[type[Model], ...] = ()  # models of which one is enough, too

    def share(self, url_name: str) -> int:
        """Return how much of the name of a URL belongs to the tab's own names; 0 if it is no page of the tab."""
        return max((len(name) for name in (self.page, *self.pages) if url_name.startswith(name)), default=0)


def _failed_jobs(request: HttpRequest) -> QuerySet[Job]:
    return visible.narrow(request.user, Job.objects.current.filter(status=states.Status.ERROR))


def _failed_deliveries(request: HttpRequest) -> QuerySet[WebhookDelivery]:
    rows = WebhookDelivery.objects.using(Job.objects.database.alias).filter(status=WebhookDelivery.Status.FAILED)
    return visible.narrow_deliveries(request.user, rows)


TABS = (
    Tab(_("Overview"), OVERVIEW, Job, "o", others=(Queue, Schedule, Worker)),
    Tab(_("Jobs"), "jobqueue_job_changelist", Job, "j", ("jobqueue_job_",)),
    Tab(_("Errors"), "jobqueue_job_errors", Job, "e", ("jobqueue_job_error",), _failed_jobs, _("failed")),
    Tab(_("Queues"), "jobqueue_queue_changelist", Queue, "q", ("jobqueue_queue_",)),
    Tab(_("Tasks"), "jobqueue_job_tasks", Job, "t", ("jobqueue_job_task",)),
    Tab(_("Targets"), "jobqueue_job_targets", Job, "r", ("jobqueue_job_target", "jobqueue_job_clear_target")),
    Tab(
        _("Workers"),
        "jobqueue_worker_changelist",
        Worker,
        "w",
        ("jobqueue_worker_", "jobqueue_backgroundjoblease_"),
        lambda request: alive(),
        _("alive"),
    ),
    Tab(
        _("Schedules"),
        "jobqueue_schedule_changelist",
        Schedule,
        "s",
        ("jobqueue_schedule_",),
        lambda request: Schedule.objects.current.failing(),
        _("failing"),
    ),
    Tab(
        _("Webhooks"),
        "jobqueue_webhookdelivery_changelist",
        WebhookDelivery,
        "h",
        ("jobqueue_webhookdelivery_",),
        _failed_deliveries,
        _("failed"),
    ),
    Tab(_("Activity"), "jobqueue_auditrecord_changelist", AuditRecord, "a", ("jobqueue_auditrecord_",)),
)


@dataclass(frozen=True, slots=True)
class ShownTab:
    """A tab as the template shows it."""

    label: Promise
    url: str
    key: str
    is_current: bool
    number: str
    counted: Promise | str


def shown_tabs(request: HttpRequest) -> list[ShownTab]:
    """Return the tabs that a user sees on a page."""
    pages = Pages(request)
    found = [(tab, url) for tab in TABS if _may_view(pages, tab) and (url := pages.url(tab.page))]
    url_name = getattr(request.resolver_match, "url_name", "") or ""
    current = max((tab for tab, _ in found), key=lambda tab: tab.share(url_name), default=None)
    numbers = _numbers(request, [tab for tab, _ in found])
    return [
        ShownTab(tab.label, url, tab.key, tab is current and bool(tab.share(url_name)), numbers.get(tab.page, ""), tab.counted)
        for tab, url in found
    ]


def _may_view(pages: Pages, tab: Tab) -> bool:
    user: Any = pages.request.user
    return any(map(pages.may_view, (tab.model, *tab.others))) and (not tab.permission or user.has_perm(tab.permission))


def _numbers(request: HttpRequest, tabs: list[Tab]) -> dict[str, str]:
    """Return the numbers that are not 0, by the names of the pages."""
    queries = {tab.page: tab.rows(request) for tab in tabs if tab.rows is not None}
    if not queries:
        return {}
    database = Job.objects.database
    # What the user may see is a part of the statement, so users with different rights have different results.
    sql, params = counting.statement(database, [*queries.values()], MAX_COUNTED)
    numbers = recent.kept(("tabs", database.scope, sql, repr(params)), KEPT_SECONDS, lambda: counting.count(database, sql, params))
    return {page: bounded(number, number >= MAX_COUNTED) for page, number in zip(queries, numbers, strict=True) if number}
