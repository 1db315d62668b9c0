"""Bad rows: for each column of the tables that workers read, the extremes of its type, NULL, junk in JSON and times out of range."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

from django.db import connection, models
from django.utils import timezone

from jobqueue.models import BackgroundJobLease, Job, JobDependency, JobPhase, Queue, Schedule, WebhookDelivery, Worker
from tests.factories import DeliveryFactory, JobFactory, ScheduleFactory, WorkerFactory
from tests.unchecked import write

MODELS = (Job, JobPhase, JobDependency, WebhookDelivery, Schedule, BackgroundJobLease, Worker, Queue)
# The states in which workers meet a job; each value is tried in each of them.
TRAITS: tuple[dict[str, Any], ...] = (
    {},
    {"expired": True},
    {"due": True},
    {"expired": True, "cancel_requested": True, "cancel_outcome": "CANCELED"},
    {"target": "bad"},
    {"success": True},
    {"error": True},
)
DIGITS = "9" * 5000
JUNK = (
    *("null", "0", '"text"', "[]", "{}", "true", "1e400", '[null, {"a": [1]}]', '{"a": null, "": [[]]}', '{"unknown_since": 7}'),
    *(DIGITS, f"[{DIGITS}]", "[" * 3000 + "]" * 3000, '{"a":' * 3000 + "1" + "}" * 3000),
    '[{"attempt": "x", "started_at": 1, "finished_at": [], "message": null, "traceback": {}, "outcome": 3, "exception": []}]',
)
NUL = ('"\\u0000"', '["\\ud800"]')
TIMES = ("infinity", "-infinity", "0044-03-15 12:00:00 BC", "0001-01-01 00:00:00", "9999-12-31 23:59:59", "12000-01-01 00:00:00")
INTEGERS = {
    models.SmallIntegerField: (-(2**15), 2**15 - 1),
    models.PositiveSmallIntegerField: (-1, 2**15 - 1),
    models.IntegerField: (-(2**31), 2**31 - 1),
    models.PositiveIntegerField: (-1, 0, 2**31 - 1),
    models.BigIntegerField: (-(2**63), 2**63 - 1),
    models.ForeignKey: (-1, 0, 2**63 - 1),
}


# What SQLite holds in a column of integers, too.
JUNK_NUMBERS = ("1.5", "x'00'", "'x'", str(2**63 - 1), str(-(2**63)))


class Bad(NamedTuple):
    """One value for one column, in a row of a model that is made in some state."""

    model: Any
    column: str
    value: str
    traits: dict[str, Any]

    @property
    def name(self) -> str:
        """The case in a few words."""
        return f"{self.model.__name__}.{self.column} = {self.value[:40]} {[*self.traits]}"


def every() -> list[Bad]:
    """Return all cases, always in the same order."""
    return [
        Bad(model, field.column, value, traits)
        for model in MODELS
        for field in model._meta.concrete_fields
        if not field.primary_key and not isinstance(field, models.GeneratedField)
        for value in values(field)
        for traits in (TRAITS if model is Job else ({},))
    ]


def values(field: Any) -> Iterator[str]:
    """Yield expressions of SQL for a column."""
    if field.null:
        yield "NULL"
    yield from map(_quoted, _values(field))
    if connection.vendor == "sqlite" and isinstance(field, models.IntegerField | models.ForeignKey):
        yield from JUNK_NUMBERS
    if connection.vendor == "sqlite" and isinstance(field, models.UUIDField):
        yield from ("'junk'", "x'00'")


def _values(field: Any) -> Iterator[Any]:
    sqlite = connection.vendor == "sqlite"
    if isinstance(field, models.JSONField):
        yield from (*JUNK, *(NUL if sqlite else ()))
    elif isinstance(field, models.DateTimeField):
        yield from (*TIMES, *(("junk", "2026-02-30 00:00:00", "") if sqlite else ()))
    elif isinstance(field, models.BooleanField):
        yield from (True, False)
    elif isinstance(field, models.UUIDField):
        yield from ("0" * 32, "f" * 32)
    elif isinstance(field, models.CharField | models.TextField):
        longest = field.max_length or 100_000
        yield from ("", "JUNK", "\N{SNOWMAN}" * longest, "a\nb\x01\x7f\u202e"[:longest], "<script>&'\"%s{}"[:longest], "/"[:longest])
    elif type(field) in INTEGERS:
        yield from INTEGERS[type(field)]


def _quoted(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    return f"({value})" if isinstance(value, int) else "'" + value.replace("'", "''").replace("%", "%%") + "'"


def make(bad: Bad, number: int) -> Any:
    """Make the row of a case and return it; None if the database refuses the value, which is as good."""
    row = _row(bad, number)
    from django.db import DatabaseError, transaction

    try:
        with transaction.atomic():
            write(bad.model, row.pk, bad.column, bad.value)
    except DatabaseError:
        row.delete() if not isinstance(row, Job) else Job.objects.filter(pk=row.pk).erase()
        return None
    return row


def _row(bad: Bad, number: int) -> Any:
    now = timezone.now()
    if bad.model is Job:
        traits = {**bad.traits, **({"target": f"bad-{number}"} if "target" in bad.traits else {})}
        return JobFactory(**traits)
    job = JobFactory()
    made = {
        WebhookDelivery: lambda: DeliveryFactory(job=job),
        Schedule: lambda: ScheduleFactory(name=f"bad-{number}", next_at=now, cron="", interval_seconds=3600),
        Worker: lambda: WorkerFactory(id=uuid.uuid4()),
        Queue: lambda: Queue.objects.create(name=f"bad-{number}"),
        BackgroundJobLease: lambda: BackgroundJobLease.objects.create(job_name=f"bad_{number}"),
        JobPhase: lambda: JobPhase.objects.create(job=JobFactory(phase="first", expired=True), name="first", position=0),
        JobDependency: lambda: JobDependency.objects.create(parent=JobFactory(waiting_for_children=True), child=job),
    }
    return made[bad.model]()


def batches(cases: list[Bad], size: int) -> Iterator[list[Bad]]:
    """Yield the cases, some at a time, those of one column far from each other."""
    step = max(len(cases) // size, 1)
    mixed = list(itertools.chain.from_iterable(cases[first::step] for first in range(step)))
    for first in range(0, len(mixed), size):
        yield mixed[first : first + size]
