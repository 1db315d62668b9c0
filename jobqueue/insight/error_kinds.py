"""The jobs in ERROR by the kind of their error: the task, the exception, and the message without numbers and quoted values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Max, Min, Q, QuerySet

from jobqueue.access import visible
from jobqueue.core import states
from jobqueue.core.masking import mask_text
from jobqueue.db import Now
from jobqueue.db import error_kinds as kinds_sql
from jobqueue.db.error_kinds import DAY_SECONDS, HOUR_SECONDS, KindCount, LastError
from jobqueue.insight.arguments import with_small_arguments
from jobqueue.insight.search import UNREAD
from jobqueue.insight.targets import blocking_jobs
from jobqueue.models import Job

MAX_KINDS = 500
MAX_COUNTED = 1_000  # of each kind
MAX_READ = 10_000  # the newest jobs in ERROR that are counted for a user who may not see all jobs
UNKNOWN = LastError("", None, None)


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """The jobs that are in ERROR with one kind of error.

    `key` is that of `core.error_kinds.error_key`. The numbers are exact below `MAX_COUNTED`, which means that many or
    more. `first_at` and `last_at` are the times at which the first and the last of the jobs ended. The texts are those
    of `newest_id`, the job that ended last.
    """

    key: str
    task: str
    exception: str
    message: str
    number: int
    number_is_capped: bool
    in_last_hour: int
    in_last_day: int
    first_at: datetime | None
    last_at: datetime | None
    newest_id: int


def error_kinds() -> list[ErrorKind]:
    """Return the kinds of errors of all jobs that are in ERROR, the most frequent first."""
    return _described(kinds_sql.count_kinds(Job.objects.database, MAX_KINDS, MAX_COUNTED))


def error_kinds_for(user: Any) -> list[ErrorKind]:
    """Return the kinds of errors of those jobs in ERROR that the user may see, the most frequent first."""
    return error_kinds_of(visible.narrow(user, Job.objects.current)) if visible.is_narrowed(user) else error_kinds()


def error_kinds_of(jobs: QuerySet[Job]) -> list[ErrorKind]:
    """Return the kinds of errors of those of the jobs that are in ERROR, among the `MAX_READ` that ended last, the most frequent first."""
    failed = jobs.filter(status=states.Status.ERROR)
    rows = Job.objects.current.filter(pk__in=failed.order_by("-finished_at").values("pk")[:MAX_READ]).order_by().values_list("error_key")
    within = (Count("pk", filter=Q(finished_at__gt=Now() - timedelta(seconds=seconds))) for seconds in (HOUR_SECONDS, DAY_SECONDS))
    hour, day = within
    groups = rows.annotate(Count("pk"), hour=hour, day=day, first=Min("finished_at"), last=Max("finished_at"), newest=Max("pk"))
    return _described(KindCount(*row) for row in groups[:MAX_KINDS])


@dataclass(frozen=True, slots=True)
class KindRuns:
    """The jobs of one kind that ended last, with their small arguments, and the releases of their last runs."""

    jobs: list[Job]
    releases: dict[int, str]


def kind_runs(jobs: QuerySet[Job], key: str, most: int) -> KindRuns:
    """Return up to `most` of the jobs in ERROR with a kind of error, the one that ended last first."""
    failed = jobs.filter(status=states.Status.ERROR, error_key=key).order_by("-finished_at", "-pk")
    found = list(with_small_arguments(failed.defer(*UNREAD))[:most])
    return KindRuns(found, kinds_sql.last_releases(Job.objects.database, [job.pk for job in found]))


def blocked_lines(jobs: QuerySet[Job]) -> dict[str, list[Job]]:
    """Return, by the kind of their error, those of the jobs that are in ERROR with a target for which other jobs wait."""
    blocking, _ = blocking_jobs()
    ids = [job.pk for job in blocking if job.status == states.Status.ERROR]
    found: dict[str, list[Job]] = {}
    for job in jobs.filter(pk__in=ids).only("error_key", "tenant", "target", "task"):
        found.setdefault(job.error_key, []).append(job)
    return found


def last_errors_of(jobs: QuerySet[Job], keys: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return the exception and the message of the job of each kind that ended last, of some jobs."""
    failed = jobs.filter(status=states.Status.ERROR).order_by("-finished_at", "-pk").values_list("pk", flat=True)
    newest = {key: job_id for key in keys if (job_id := failed.filter(error_key=key).first()) is not None}
    errors = kinds_sql.last_errors(Job.objects.database, newest.values())
    found = {key: errors[job_id] for key, job_id in newest.items() if job_id in errors}
    return {key: (error.exception or "", mask_text(error.message or "")) for key, error in found.items()}


def _described(counts: Iterable[KindCount]) -> list[ErrorKind]:
    ordered = sorted(counts, key=lambda count: (-count.number, count.key))
    errors = kinds_sql.last_errors(Job.objects.database, [count.newest_id for count in ordered])
    return [_kind(count, errors.get(count.newest_id, UNKNOWN)) for count in ordered]


def _kind(count: KindCount, error: LastError) -> ErrorKind:
    return ErrorKind(
        key=count.key,
        task=error.task,
        exception=error.exception or "",
        message=mask_text(error.message or ""),
        number=min(count.number, MAX_COUNTED),
        number_is_capped=count.number >= MAX_COUNTED,
        in_last_hour=min(count.in_last_hour, MAX_COUNTED),
        in_last_day=min(count.in_last_day, MAX_COUNTED),
        first_at=count.first_at,
        last_at=count.last_at,
        newest_id=count.newest_id,
    )


def summary(exception: str, message: str) -> str:
    """Return the class of an error and its message, which names the class first if a task raised the error."""
    name = exception.rpartition(".")[2]
    return message if message.startswith(name) else ": ".join(filter(None, [name, message]))
