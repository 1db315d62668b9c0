"""Every query on queues, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import models, router
from django.db.models import F, Q

from jobqueue.db import Now

if TYPE_CHECKING:
    from jobqueue.models import Queue  # noqa: F401 - the base class names it

OVER = Q(paused=True, paused_until__lte=Now())


class QueueQuerySet(models.QuerySet["Queue"]):
    """Name the sets of queues that the product looks at."""

    def special(self) -> QueueQuerySet:
        """Return the queues that are paused or limited."""
        return self.filter(Q(paused=True) | Q(max_running__isnull=False))

    def over(self) -> QueueQuerySet:
        """Return the queues whose pause was to end by now."""
        return self.filter(OVER)

    def special_first(self) -> QueueQuerySet:
        """Return the queues in order, first those that are paused, then those that are limited."""
        return self.order_by("-paused", F("max_running").asc(nulls_last=True), "pk")

    def closed(self) -> QueueQuerySet:
        """Return the queues of which no job may begin: those that are paused, and those limited to none."""
        return self.filter(Q(paused=True) | Q(max_running=0))


class QueueManager(models.Manager.from_queryset(QueueQuerySet)):  # type: ignore[misc]
    """Run the queries on the database that queues are written to, also for reading where a decision depends on it."""

    @property
    def current(self) -> QueueQuerySet:
        """All queues, read where they are written."""
        return QueueQuerySet(self.model, using=router.db_for_write(self.model))
