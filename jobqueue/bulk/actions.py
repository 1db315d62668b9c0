"""Request a bulk action, count first what it would change, show it, and stop it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from django.db.models import Q, QuerySet

from jobqueue.access import audit, visible
from jobqueue.core.answers import Answer
from jobqueue.core.search import Search
from jobqueue.core.states import Status, WaitingFor
from jobqueue.db import Now
from jobqueue.db.open_jobs import OPEN
from jobqueue.exceptions import InvalidOption, InvalidSearch
from jobqueue.insight.search import MAX_COUNTED, condition, first_matching, parsed
from jobqueue.lifecycle import control
from jobqueue.models import BulkAction, Job

KEPT: Final = timedelta(days=30)  # then a new request deletes the row of an ended action
MAX_SAMPLE: Final = 10
MAX_MATCHED: Final = 1000  # jobs that a preview counts if it must read and mask each of them
COUNTED: Final = ("status", "queue", "task")  # which an index has


@dataclass(frozen=True, slots=True)
class BulkVerb:
    """A verb on one job, the statuses in which it is possible, its past participle, and what the jobs must wait for."""

    act: Callable[[int], Answer]
    statuses: Sequence[str]
    done: str
    waiting_for: str = ""

    @property
    def possible(self) -> Q:
        """The condition for these jobs."""
        return Q(status__in=self.statuses, **({"waiting_for": self.waiting_for} if self.waiting_for else {}))


VERBS: Final = {
    "cancel": BulkVerb(control.cancel, (Status.PENDING, Status.QUEUED, Status.RUNNING, Status.PAUSED, Status.ERROR), "canceled"),
    "pause": BulkVerb(control.pause, (Status.PENDING, Status.QUEUED, Status.RUNNING), "paused"),
    "resume": BulkVerb(control.resume, (Status.PAUSED, Status.ERROR), "resumed"),
    "run_now": BulkVerb(control.run_now, (Status.PENDING,), "queued to run now", WaitingFor.TIME),
    "delete": BulkVerb(control.delete, [one for one in Status if one != Status.RUNNING], "deleted"),
}


@dataclass(frozen=True, slots=True)
class Preview:
    """What a bulk action would change.

    Up to `MAX_COUNTED` jobs are counted, or up to `MAX_MATCHED` if each must be read and masked. `scope` says how far
    back, or "" for all jobs.
    """

    verb: str
    number: int
    more: bool
    by_status: dict[str, int]
    by_queue: dict[str, int]
    by_task: dict[str, int]
    by_kind: dict[str, int]  # jobs in ERROR by the kind of their error
    sample: list[int]
    scope: str


def rows() -> QuerySet[BulkAction]:
    """Return the bulk actions, from the database that they are written to."""
    return BulkAction.objects.using(Job.objects.database.alias)


def preview(verb: str, query: str, user: Any = None) -> Preview:
    """Count the jobs that a bulk action would change; `user` None is an operator, who sees all jobs."""
    search = _checked(verb, query)
    most = MAX_MATCHED if search.reads_masked else MAX_COUNTED
    jobs = seen_by(user).filter(VERBS[verb].possible, condition(search))
    statuses = [status for status in OPEN if status in VERBS[verb].statuses]
    found, scope = first_matching(jobs, search, most + 1, columns=COUNTED, statuses=statuses)
    counted = found[:most]
    failed = Job.objects.current.filter(pk__in=[job.pk for job in counted if job.status == Status.ERROR]).order_by()
    kinds = Counter(filter(None, failed.values_list("error_key", flat=True)))
    status, queue, task = (Counter(str(getattr(job, name)) for job in counted) for name in ("status", "queue", "task"))
    by_status, by_queue, by_task, by_kind = (dict(counts.most_common(MAX_SAMPLE)) for counts in (status, queue, task, kinds))
    sample = [job.pk for job in counted[:MAX_SAMPLE]]
    return Preview(verb, len(counted), len(found) > most, by_status, by_queue, by_task, by_kind, sample, scope)


def create(verb: str, query: str, *, actor: Any, source: str, address: str = "", counted: int = 0) -> BulkAction:
    """Request a bulk action; `actor` is a user, whose rights are checked again when it runs, or the name of an operator."""
    _checked(verb, query)
    newest = Job.objects.current.order_by("-pk").values_list("pk", flat=True).first() or 0
    user = "" if isinstance(actor, str) else str(actor.pk)
    with Job.objects.database.atomic():
        rows().filter(finished_at__lt=Now() - KEPT).delete()
        name = audit.name_of(actor)
        action = rows().create(user=user, actor=name, source=source, verb=verb, query=query, upto_id=newest, counted=counted)
        audit.record(actor, f"bulk {verb}", action, audit.REQUESTED, address, text=f"{verb} all jobs that the search finds: {query}")
    action.refresh_from_db()
    return action


def stop(action: BulkAction, *, actor: Any, address: str = "") -> bool:
    """Stop a bulk action after its present batch; return False if it has ended."""
    with Job.objects.database.atomic():
        changed = rows().filter(pk=action.pk, state=BulkAction.State.OPEN).update(stop=True)
        audit.record(actor, "stop", action, audit.REQUESTED if changed else audit.REFUSED, address)
    action.refresh_from_db()
    return bool(changed)


def seen_by(user: Any) -> QuerySet[Job]:
    """Return the jobs that a user may see; those of an operator (None) are all."""
    return Job.objects.current if user is None else visible.narrow(user, Job.objects.current)


def as_json(action: BulkAction) -> dict[str, Any]:
    """Return the state of a bulk action as JSON values."""
    names = ("id", "verb", "query", "actor", "source", "state", "stop", "counted", "done", "refused", "refusals", "message")
    times = {name: when.isoformat() if (when := getattr(action, name)) else None for name in ("created_at", "finished_at")}
    return {**{name: getattr(action, name) for name in names}, **times}


def _checked(verb: str, query: str) -> Search:
    if verb not in VERBS:
        raise InvalidOption(f"verb is {verb[:80]!r}; it must be one of {', '.join(VERBS)}.")
    search = parsed(query)
    if search == Search():
        raise InvalidSearch("A bulk action needs a search with at least one condition. For all jobs in ERROR, write status:ERROR.")
    return search
