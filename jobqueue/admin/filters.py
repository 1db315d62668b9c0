"""The filters of the lists; none scans the whole table for its choices.

Tasks come from the registry and the newest jobs. Queues come from there, from the workers, and from an index that
has only queued jobs. A value that is not among the choices still works in the URL of the page.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib.admin import SimpleListFilter
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _lazy
from django.utils.translation import ngettext

from jobqueue.access.visible import is_narrowed
from jobqueue.admin import task_choices
from jobqueue.admin.labels import translated
from jobqueue.core import masking, queue_rules, states
from jobqueue.core.retention_rules import MAX_SECONDS
from jobqueue.core.texts import clean
from jobqueue.db import Now, claims
from jobqueue.models import Job, Schedule, Worker

if TYPE_CHECKING:
    from django.contrib.admin import ModelAdmin

MAX_CHOICES = 100
NEWEST = 1000


class ColumnFilter(SimpleListFilter):
    """A filter that compares one column with one value."""

    column: ClassVar[str]

    def choices_offered(self, visible: QuerySet[Job]) -> list[tuple[str, str]]:
        """Return the values and their names; `visible` are the jobs that the user may see."""
        raise NotImplementedError

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> list[tuple[str, str]]:
        """Return the choices, and the current value even if it is not one of them."""
        offered = self.choices_offered(model_admin.get_queryset(request))
        chosen = self.value()
        if chosen and chosen not in dict(offered):
            offered.append((chosen, masking.mask_text(clean(chosen))))
        return offered

    def queryset(self, request: HttpRequest, queryset: QuerySet[Job]) -> QuerySet[Job]:
        """Return the jobs whose column has the value."""
        value = self.value()
        if not value:
            return queryset
        return queryset.none() if "\0" in value else self.narrow(queryset, value)

    def narrow(self, queryset: QuerySet[Job], value: str) -> QuerySet[Job]:
        """Return the jobs whose column has this value."""
        return queryset.filter(**{self.column: value})


class StatusFilter(ColumnFilter):
    """A filter by status."""

    title = _lazy("status")
    parameter_name = column = "status"

    def choices_offered(self, visible: QuerySet[Job]) -> list[tuple[str, str]]:
        """Return all statuses."""
        return [(str(value), translated(label)) for value, label in states.Status.choices]


class WaitingForFilter(ColumnFilter):
    """A filter by what a pending job waits for."""

    title = _lazy("waiting for")
    parameter_name = "waiting"
    column = "waiting_for"

    def choices_offered(self, visible: QuerySet[Job]) -> list[tuple[str, str]]:
        """Return the reasons to wait."""
        return [(str(value), translated(label)) for value, label in states.WaitingFor.choices if value]

    def narrow(self, queryset: QuerySet[Job], value: str) -> QuerySet[Job]:
        """Filter by the status, too, as the index does."""
        return queryset.filter(status=states.Status.PENDING, waiting_for=value)


class QueueFilter(ColumnFilter):
    """A filter by queue."""

    title = _lazy("queue")
    parameter_name = column = "queue"

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> list[tuple[str, str]]:
        """Return the choices; users who may not see all jobs get no name of a queue that only hidden jobs have."""
        self.narrowed = is_narrowed(request.user)
        return super().lookups(request, model_admin)

    def choices_offered(self, visible: QuerySet[Job]) -> list[tuple[str, str]]:
        """Return the queues that tasks, workers or jobs name."""
        names = task_choices.queues() | newest(visible, "queue")
        if not self.narrowed:
            names |= {queue for queue in claims.queued_queues(Job.objects.database, MAX_CHOICES) if isinstance(queue, str)}
        for queues in Worker.objects.values_list("queues", flat=True)[:MAX_CHOICES]:
            rule = queue_rules.parse_stored(queues)
            names |= {*rule.listed} if rule is not None else set()
        return _without_secrets(names)


class TaskFilter(ColumnFilter):
    """A filter by task."""

    title = _lazy("task")
    parameter_name = column = "task"

    def choices_offered(self, visible: QuerySet[Job]) -> list[tuple[str, str]]:
        """Return the tasks that are registered or were enqueued recently."""
        lately = sorted(newest(visible, "task"))[:MAX_CHOICES]  # these first, if there are more than can be offered
        paths = sorted({*lately, *[path for path in task_choices.paths() if path not in lately][: MAX_CHOICES - len(lately)]})
        return [(path, f"{path.rpartition('.')[2]} ({path.rpartition('.')[0]})" if "." in path else path) for path in paths]


class EndedFilter(SimpleListFilter):
    """A filter for objects that ended within the last N seconds; any number of seconds works in the URL of the page."""

    title = _lazy("ended")
    parameter_name = "ended_within"

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> list[tuple[str, str]]:
        """Return some durations, and the current one even if it is not one of them."""
        offered = [(str(seconds), in_the_last(seconds)) for seconds in (3600, 86_400, 14 * 86_400)]
        seconds = self.seconds
        if seconds is not None and self.value() not in dict(offered):
            offered.append((str(self.value()), in_the_last(seconds)))
        return offered

    @property
    def seconds(self) -> float | None:
        """The chosen number of seconds; None if the URL has none."""
        try:
            seconds = float(self.value() or "nan")
        except ValueError:
            return None
        return seconds if 0 <= seconds <= MAX_SECONDS else None

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the objects that ended since; nothing if the value is not a number of seconds."""
        if not self.value():
            return queryset
        seconds = self.seconds
        return queryset.none() if seconds is None else queryset.filter(finished_at__gt=Now() - timedelta(seconds=seconds))


class EndedJobFilter(EndedFilter):
    """A filter for jobs that ended within the last N seconds."""

    def queryset(self, request: HttpRequest, queryset: QuerySet[Job]) -> QuerySet[Job]:
        """Filter by the status, too, as the index by the time of the end does."""
        narrowed = super().queryset(request, queryset)
        return narrowed.filter(status__in=states.ENDED) if self.value() else narrowed


class FailingFilter(SimpleListFilter):
    """A filter for the active schedules whose job could not be enqueued at the last attempt."""

    title = _lazy("last try")
    parameter_name = "failing"

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> list[tuple[str, str]]:
        """Return the only choice."""
        return [("1", _("failed"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> QuerySet[Schedule]:
        """Return the schedules that fail."""
        rows: Any = queryset
        narrowed: QuerySet[Schedule] = rows.failing() if self.value() else rows
        return narrowed


def _without_secrets(names: Iterable[str]) -> list[tuple[str, str]]:
    """Return the first names as choices, except for those that contain a secret, because the URLs of choices are stored."""
    return [(name, name) for name in sorted(names)[:MAX_CHOICES] if masking.mask_text(name) == name]


def newest(visible: QuerySet[Job], column: str) -> set[str]:
    """Return the texts that a column has in the newest jobs; SQLite can store other values, too."""
    return {value for value in visible.order_by("-pk").values_list(column, flat=True)[:NEWEST] if isinstance(value, str)}


class TargetFilter(ColumnFilter):
    """A filter by the target in the page's URL; its only choice removes it."""

    title = _lazy("target")
    parameter_name = column = "target"

    def choices_offered(self, visible: QuerySet[Job]) -> list[tuple[str, str]]:
        """Return no choices, because there can be very many."""
        return []


class TenantFilter(ColumnFilter):
    """A filter by tenant."""

    title = _lazy("tenant")
    parameter_name = column = "tenant"

    def choices_offered(self, visible: QuerySet[Job]) -> list[tuple[str, str]]:
        """Return the tenants of the newest jobs."""
        return _without_secrets(newest(visible, "tenant") - {""})


class BeforeFilter(ColumnFilter):
    """A filter for the jobs with smaller numbers, by which a search continues further back."""

    title = _lazy("before")
    parameter_name = column = "before"

    def choices_offered(self, visible: QuerySet[Job]) -> list[tuple[str, str]]:
        """Return no choices."""
        return []

    def narrow(self, queryset: QuerySet[Job], value: str) -> QuerySet[Job]:
        """Return the jobs with numbers below the value; none if it is no number."""
        is_number = value.isascii() and value.isdigit() and len(value) < 19
        return queryset.filter(pk__lt=int(value)) if is_number else queryset.none()


def chip(name: str, value: str) -> tuple[str, str]:
    """Return the name and the value of a filter in words."""
    if name == "ended_within" and value.isascii() and value.isdigit() and len(value) < 12:
        return _("ended"), in_the_last(float(value))
    return translated(name.replace("_", " ")), value


def in_the_last(seconds: float) -> str:
    """Return the label of a length of time until now."""
    if seconds >= 86_400 and seconds % 86_400 == 0:
        number = int(seconds // 86_400)
        return ngettext("in the last day", "in the last %(number)s days", number) % {"number": number}
    if seconds >= 3600 and seconds % 3600 == 0:
        number = int(seconds // 3600)
        return ngettext("in the last hour", "in the last %(number)s hours", number) % {"number": number}
    if seconds >= 60 and seconds % 60 == 0:
        number = int(seconds // 60)
        return ngettext("in the last minute", "in the last %(number)s minutes", number) % {"number": number}
    return _("in the last %(number)s s") % {"number": f"{seconds:g}"}
