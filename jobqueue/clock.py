"""Times in Python: all times of jobqueue are aware, with any ``USE_TZ``; times of the project are converted on entry."""

from __future__ import annotations

from datetime import UTC, datetime

from django.utils import timezone

from jobqueue import conf


def now() -> datetime:
    """Return the time of this machine's clock, in UTC."""
    return datetime.now(UTC)


def aware(moment: datetime) -> datetime:
    """Return a time with a zone: a naive time is in the project's ``TIME_ZONE``, as in Django's own fields."""
    return timezone.make_aware(moment, timezone.get_default_timezone()) if timezone.is_naive(moment) else moment


def as_project(moment: datetime | None) -> datetime | None:
    """Return a time in the form of the project's code: naive and in ``TIME_ZONE`` if ``USE_TZ`` is False."""
    if moment is None or conf.uses_time_zones() or timezone.is_naive(moment):
        return moment
    return timezone.make_naive(moment, timezone.get_default_timezone())
