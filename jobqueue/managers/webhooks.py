"""The queries on the outbox of webhooks."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Generic, Self

from django.db import models, router
from django.db.models import Q

from jobqueue.managers import Row

PENDING = "PENDING"


class DeliveryQuerySet(models.QuerySet[Row]):
    """Sets of deliveries."""

    def due(self, now: datetime) -> Self:
        """Return the deliveries that are due, in the order of their times."""
        return self.filter(status=PENDING, next_attempt_at__lte=now).order_by("next_attempt_at", "id")

    def without_receivers(self, origins: Collection[str]) -> Self:
        """Exclude the deliveries to some receivers, given as scheme, host and port."""
        condition = Q(pk__in=())
        for origin in origins:
            condition |= (
                Q(url__istartswith=f"{origin}/")
                | Q(url__istartswith=f"{origin}?")
                | Q(url__istartswith=f"{origin}#")
                | Q(url__iexact=origin)
            )
        return self.exclude(condition) if origins else self

    def claimed(self, delivery_id: int, attempts: int, until: datetime) -> Self:
        """Return the delivery if it is still in the attempt that a sender has begun. It is not if another sender has taken it since."""
        return self.filter(pk=delivery_id, status=PENDING, attempts=attempts, next_attempt_at=until)

    def retried(self) -> Self:
        """Return the deliveries of which an attempt has failed and that will be tried again."""
        return self.filter(status=PENDING, attempts__gt=0).exclude(error="")

    def ended(self) -> Self:
        """Return the deliveries that were delivered or given up."""
        return self.exclude(status=PENDING)


class DeliveryManager(models.Manager.from_queryset(DeliveryQuerySet), Generic[Row]):  # type: ignore[misc]
    """The queries on deliveries, on the database that they are written to."""

    @property
    def current(self) -> DeliveryQuerySet[Row]:
        """All deliveries, read from the database that they are written to."""
        return DeliveryQuerySet(self.model, using=router.db_for_write(self.model))
