"""The jobs that a user may see: the setting ``VISIBLE_JOBS``, the same for the admin, the REST API and the streams.

The callable of the setting returns a `Q` on `Job` for a user. If it raises, or returns any other type, the user
sees nothing: an error in a rule about permissions must not show the jobs of one tenant to another.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any

from django.core.exceptions import EmptyResultSet, FullResultSet
from django.db.models import Exists, OuterRef, Q, QuerySet

from jobqueue import conf
from jobqueue.core import repeats
from jobqueue.core.texts import safe_repr
from jobqueue.models import Job, WebhookDelivery

NOTHING = Q(pk__in=[])
MAX_REMEMBERED = 10_000


def condition(user: Any) -> Q | None:
    """Return the condition that a job must meet for the user to see it; None if the user sees all jobs."""
    try:
        rule = conf.visible_jobs()
        if rule is None:
            return None
        wanted = rule(user)
        if isinstance(wanted, Q):
            Job.objects.filter(wanted)  # a column that does not exist raises here, not on a page
    except Exception:  # noqa: BLE001 - code of the user's project can raise any exception
        repeats.log(
            logging.ERROR, "VISIBLE_JOBS failed for user %s, who sees no jobs.", safe_repr(str(getattr(user, "pk", None))), exc_info=True
        )
        return NOTHING
    if isinstance(wanted, Q):
        return wanted or None  # an empty Q is no condition
    repeats.log(
        logging.ERROR, "VISIBLE_JOBS returned %s for a user, who sees no jobs. It must return a Q; Q() shows all jobs.", safe_repr(wanted)
    )
    return NOTHING


def narrow(user: Any, jobs: QuerySet[Job]) -> QuerySet[Job]:
    """Return those of the jobs that the user may see."""
    wanted = condition(user)
    return jobs if wanted is None else jobs.filter(wanted)


def narrow_deliveries(user: Any, deliveries: QuerySet[WebhookDelivery]) -> QuerySet[WebhookDelivery]:
    """Return the webhook deliveries whose job the user may see; those of deleted jobs only if the user sees all jobs."""
    wanted = condition(user)
    return deliveries if wanted is None else deliveries.filter(Exists(Job.objects.filter(wanted, pk=OuterRef("job_id"))))


def is_narrowed(user: Any) -> bool:
    """Return whether there are jobs that the user may not see."""
    return condition(user) is not None


def may_see(user: Any, job_id: int) -> bool:
    """Return whether the user may see a job; True for a job that does not exist."""
    wanted = condition(user)
    if wanted is None:
        return True
    jobs = Job.objects.current.filter(pk=job_id)
    return jobs.filter(wanted).exists() or not jobs.exists()


class Sight:
    """The jobs that a restricted user may see in a stream; equal if the conditions are equal, so that streams share one query."""

    def __init__(self, wanted: Q) -> None:
        """Store the condition; it is compared by its SQL, because two equal subqueries are different objects."""
        self._wanted = wanted
        self._known: dict[int, None] = {}
        try:
            sql, params = Job.objects.filter(wanted).order_by().values("pk").query.sql_with_params()
            self._key = (sql, repr(params))
        except EmptyResultSet:
            self._key = ("nothing", "")
        except FullResultSet:
            self._key = ("all", "")

    def __eq__(self, other: object) -> bool:
        """Compare the conditions."""
        return isinstance(other, Sight) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def among(self, ids: Collection[int]) -> set[int]:
        """Return which of the jobs may be seen. A deleted job may be seen if it was seen here before."""
        if not ids:
            return set()
        existing = dict(Job.objects.current.filter(pk__in=ids).values_list("pk", "pk"))
        seen = set(Job.objects.current.filter(self._wanted, pk__in=[*existing]).values_list("pk", flat=True))
        deleted = {job_id for job_id in ids if job_id not in existing and job_id in self._known}
        if len(self._known) > MAX_REMEMBERED:
            self._known.clear()
        self._known.update(dict.fromkeys(seen))
        return seen | deleted


def sight(user: Any) -> Sight | None:
    """Return the `Sight` of a user in a stream; None if the user sees all jobs."""
    wanted = condition(user)
    return None if wanted is None else Sight(wanted)
