"""The queries on queues."""

from __future__ import annotations

from typing import Generic, Self

from django.db import models, router
from django.db.models import F, Q

from jobqueue.db import Now
from jobqueue.managers import Row

OVER = Q(paused=True, paused_until__lte=Now())


class QueueQuerySet(models.QuerySet[Row]):
    """Sets of queues."""

    def special(self) -> Self:
        """Return the queues that are paused or limited."""
        return self.filter(Q(paused=True) | Q(max_running__isnull=False))

    def over(self) -> Self:
        """Return the queues whose pause has ended."""
        return self.filter(OVER)

    def special_first(self) -> Self:
        """Return the queues in order: paused ones first, then limited ones."""
        return self.order_by("-paused", F("max_running").asc(nulls_last=True), "pk")

    def not_starting(self) -> Self:
        """Return the queues that start no job: those that are paused, and those with a limit of 0."""
        return self.filter(Q(paused=True) | Q(max_running=0))


class QueueManager(models.Manager.from_queryset(QueueQuerySet), Generic[Row]):  # type: ignore[misc]
    """The queries on queues, on the database that they are written to. Reads on which a decision depends use that database."""

    @property
    def current(self) -> QueueQuerySet[Row]:
        """All queues, read from the database that they are written to."""
        return QueueQuerySet(self.model, using=router.db_for_write(self.model))
