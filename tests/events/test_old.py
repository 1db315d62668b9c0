"""Events are deleted with their job and by their age; messages that have not been sent stay."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from jobqueue.core.retention_rules import OUTCOMES, Rules, after
from jobqueue.db import eventlog
from jobqueue.duties.apply_retention import ApplyRetention
from jobqueue.models import Job, JobDependency, JobEvent, JobPhase, WebhookDelivery
from jobqueue.retention.apply import Sweep
from jobqueue.retention.events import OldEvents
from tests.factories import JobFactory

pytestmark = pytest.mark.django_db
DAY = 86_400.0
LONG_AGO = timedelta(days=40)


def events(number: int, ago: timedelta = LONG_AGO, job_id: int = 1) -> None:
    JobEvent.objects.bulk_create([JobEvent(job_id=job_id, name="job.started", at=timezone.now() - ago) for _ in range(number)])


def message(job: Job, status: str, ago: timedelta = LONG_AGO) -> WebhookDelivery:
    ended = None if status == "PENDING" else timezone.now() - ago
    made: WebhookDelivery = WebhookDelivery.objects.create(
        job=job, event="job.completed", queue="default", url="https://x.example", status=status, finished_at=ended, message_id=f"{1:032}"
    )
    return made


def test_rows_of_a_job_are_deleted_with_it_and_its_end_is_reported() -> None:
    job, other = JobFactory(success=True), JobFactory(success=True, finished_at=timezone.now() + timedelta(hours=1))
    for owner in (job, other):
        events(3, job_id=owner.pk)
        JobPhase.objects.create(job=owner, position=0, name="p")
        JobDependency.objects.create(parent=owner, child_id=1)
    swept = Sweep(Rules(), after(OUTCOMES, 0)).run()
    assert (swept.deleted, swept.events) == (1, 3)
    assert list(JobEvent.objects.filter(job_id=job.pk).values_list("name", flat=True)) == ["job.deleted"]
    assert [JobEvent.objects.filter(job_id=other.pk).count(), JobPhase.objects.count(), JobDependency.objects.count()] == [3, 1, 1]


def test_old_events_go_in_batches_and_young_ones_stay() -> None:
    events(25)
    events(5, timedelta(days=29))
    old = OldEvents(30 * DAY)
    counts = [old.run(0.0, batch=10)]
    while counts[-1][1]:
        counts.append(old.run(0.0, batch=10))
    assert sum(deleted for deleted, _ in counts) == 25
    assert all(deleted <= 10 for deleted, _ in counts)
    assert JobEvent.objects.count() == 5
    assert old.run(1.0) == (0, False)


def test_nothing_is_deleted_without_an_age() -> None:
    events(5)
    assert OldEvents(None).run(1.0) == (0, False)
    assert JobEvent.objects.count() == 5


def test_messages_are_deleted_when_they_are_old_and_sent_or_given_up() -> None:
    job = JobFactory(success=True)
    kept = [message(job, "PENDING"), message(job, "DELIVERED", timedelta(days=1))]
    for status in ("DELIVERED", "FAILED"):
        message(job, status)
    assert OldEvents(30 * DAY).run(1.0) == (2, False)
    assert list(WebhookDelivery.objects.order_by("pk")) == kept


def test_the_duty_deletes_old_events_by_the_setting(settings: Any) -> None:
    events(3)
    settings.JOBQUEUE = {"EVENT_DELETE_AFTER": "never", "STALE_AFTER": {}, "DELETE_AFTER": {}}
    assert not ApplyRetention().can_run()
    settings.JOBQUEUE = {"EVENT_DELETE_AFTER": timedelta(days=60)}
    assert ApplyRetention().run_once(timezone.now()).items == 0
    settings.JOBQUEUE = {"STALE_AFTER": {}, "DELETE_AFTER": {}}
    duty = ApplyRetention()
    assert duty.can_run()
    assert duty.run_once(timezone.now()).items == 3


@pytest.mark.long
@pytest.mark.postgresql
def test_old_events_are_found_by_the_primary_key_whatever_the_planner_knows() -> None:
    events(2000)
    with CaptureQueriesContext(connection) as queries:
        assert eventlog.delete_old(Job.objects.database, JobEvent._meta.db_table, "at", 10 * DAY, 0, 10)[0] == 10
    [*told, look] = next(query["sql"] for query in queries.captured_queries if "coalesce" in query["sql"]).split("; ")
    with connection.cursor() as cursor:
        for setting in told:
            cursor.execute(setting)
        cursor.execute(f"EXPLAIN {look}")
        assert "jobqueue_jobevent_pkey" in str(cursor.fetchall())
