"""Every time is the same instant in Python, in the database and on the wire, whatever ``USE_TZ`` and ``TIME_ZONE`` say."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth import get_user_model
from django.db import connections
from django.db.models import Min
from django.test import Client
from django.utils import timezone

from jobqueue import clock, compat, enqueue_many
from jobqueue.db import LeaseHolder, Now, Scope, overview
from jobqueue.duties.enqueue_scheduled_jobs import EnqueueScheduledJobs
from jobqueue.lifecycle.claim import claim
from jobqueue.lifecycle.history import entry
from jobqueue.models import BackgroundJobLease, Job, JobEvent, Schedule, WebhookDelivery
from jobqueue.tasks.results import of_job
from jobqueue.testing import run_until_idle
from jobqueue.webhooks import outbox
from tests.factories import DeliveryFactory, JobFactory, ScheduleFactory
from tests.tasks_layer import samples

HOUR = timedelta(hours=1)
ZONES = [(False, "Asia/Shanghai"), (False, "America/St_Johns"), (False, "UTC"), (True, "Asia/Shanghai"), (True, "America/St_Johns")]
# In St. John's the clock goes back from 2:00 to 1:00 on this day, so each local time from 1:00 on comes twice.
FIRST = datetime(2026, 11, 1, 4, 0, tzinfo=UTC)  # 1:30 for the first time

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True, params=ZONES, ids=lambda one: f"USE_TZ={one[0]}-{one[1]}")
def zone(request: pytest.FixtureRequest, settings: Any) -> ZoneInfo:
    settings.USE_TZ, settings.TIME_ZONE = request.param
    return ZoneInfo(settings.TIME_ZONE)


def seconds_ago(when: datetime) -> float:
    assert when.tzinfo is not None
    return (clock.now() - when).total_seconds()


def stored(job: Any) -> datetime:
    found = Job.objects.get(pk=job.pk).run_at
    assert found is not None
    assert found.tzinfo is not None
    return found.astimezone(UTC)


def test_a_thread_without_a_connection_reads_the_time_that_another_one_has_got() -> None:
    """As the announcer does for the receivers of `job_stale`."""
    with connections[Job.objects.database.alias].cursor() as cursor:
        cursor.execute("SELECT created_at FROM jobqueue_job WHERE id = %s", [JobFactory().pk])
        [value] = cursor.fetchone()
    with ThreadPoolExecutor(1) as thread:
        found = thread.submit(Job.objects.database.moment, value).result()
    assert -1 < seconds_ago(found) < 20


def test_defaults_of_the_database_and_now_are_aware_and_mean_this_moment() -> None:
    job = JobFactory()
    found = Job.objects.annotate(now=Now()).get(pk=job.pk)
    assert -1 < seconds_ago(found.created_at) < 20
    assert -1 < seconds_ago(found.now) < 20  # type: ignore[attr-defined]
    assert -1 < seconds_ago(overview.clock(Job.objects.database)) < 20
    assert Job.objects.aggregate(first=Min("created_at"))["first"] == found.created_at
    assert Job.objects.filter(created_at__lte=Now(), created_at__gte=Now() - timedelta(seconds=20)).exists()


def test_a_naive_run_after_is_a_time_of_the_projects_zone(settings: Any, zone: ZoneInfo) -> None:
    local = datetime(2031, 6, 1, 12, 30)  # noqa: DTZ001
    if settings.USE_TZ:
        with pytest.raises(compat.InvalidTask, match="aware"):
            samples.plain.using(run_after=local)
        return
    result = samples.plain.using(run_after=local).enqueue(1)
    assert stored(Job.objects.get(pk=result.job_id)) == local.replace(tzinfo=zone).astimezone(UTC)
    bulk = enqueue_many(samples.plain.using(run_after=local), [((1,), {}), ((2,), {})])
    assert {stored(Job.objects.get(pk=one.job_id)) for one in bulk} == {local.replace(tzinfo=zone).astimezone(UTC)}
    result.refresh()
    assert result.task.run_after == local


def test_an_aware_run_after_is_kept_and_a_job_that_is_due_runs() -> None:
    later = datetime(2031, 6, 1, 12, 30, tzinfo=ZoneInfo("Asia/Tokyo"))
    assert stored(JobFactory(scheduled=True, run_at=later)) == later
    samples.plain.using(run_after=clock.now() - timedelta(seconds=5)).enqueue(1)
    samples.plain.using(run_after=clock.now() + HOUR).enqueue(2)
    samples.plain.using(run_after=HOUR).enqueue(3)
    assert run_until_idle() == 1
    assert 3590 < -seconds_ago(Job.objects.filter(status="PENDING").latest("pk").run_at) <= 3600


def test_each_time_of_the_hour_that_comes_twice_is_kept(settings: Any) -> None:
    settings.TIME_ZONE = "America/St_Johns"
    for moment in (FIRST, FIRST + HOUR):
        job = JobFactory(scheduled=True, run_at=moment)
        assert stored(job) == moment
        assert Job.objects.filter(pk=job.pk, run_at=moment).exists()
        assert not Job.objects.filter(pk=job.pk, run_at=moment + HOUR).exists()
        Job.objects.filter(pk=job.pk).update(run_at=stored(job))
        assert stored(job) == moment


@pytest.mark.long
def test_a_schedule_of_each_hour_is_enqueued_once_in_each_of_the_two_hours(settings: Any) -> None:
    settings.TIME_ZONE = "America/St_Johns"
    schedule = ScheduleFactory(cron="30 * * * *", time_zone="America/St_Johns", next_at=FIRST)
    now = FIRST
    while now < FIRST + 3 * HOUR:
        EnqueueScheduledJobs().run_once(now)
        now += timedelta(minutes=15)
    ticks = schedule.ticks.order_by("nominal_at").values_list("nominal_at", flat=True)
    assert list(ticks) == [FIRST, FIRST + HOUR, FIRST + 2 * HOUR]
    assert Schedule.objects.get(pk=schedule.pk).next_at == FIRST + 3 * HOUR


def test_a_message_that_is_due_is_sent_with_its_time_in_utc() -> None:
    DeliveryFactory(next_attempt_at=clock.now() + HOUR)
    due = DeliveryFactory(next_attempt_at=clock.now() - timedelta(seconds=1))
    [message] = outbox.DeliveryClaimer().claim(10, lambda origin: 10)
    assert message.delivery_id == due.pk
    assert json.loads(message.body)["timestamp"] == "2026-01-02T03:04:05+00:00"


def test_the_end_of_a_job_leaves_a_message_that_is_due_now() -> None:
    samples.plain.using(webhook_url="https://example.com/hook").enqueue(1)
    run_until_idle()
    delivery = WebhookDelivery.objects.get()
    assert -1 < seconds_ago(delivery.next_attempt_at) < 20
    assert -1 < seconds_ago(datetime.fromisoformat(json.loads(outbox.body_of(delivery))["timestamp"])) < 20
    assert json.loads(outbox.body_of(delivery))["timestamp"].endswith("+00:00")


def test_a_lease_runs_out_after_its_time() -> None:
    job = JobFactory()
    claim(LeaseHolder("worker-1", 30.0), Scope("", ()), 1)
    assert 10 < -seconds_ago(Job.objects.get(pk=job.pk).lease_expires_at) <= 31
    expired = JobFactory(expired=True)
    assert list(Job.objects.expired().values_list("pk", flat=True)) == [expired.pk]


def test_results_have_times_as_the_projects_code_has_them(settings: Any) -> None:
    result = samples.plain.enqueue(1)
    run_until_idle()
    found = of_job(Job.objects.get(pk=result.job_id))
    for when in (result.enqueued_at, found.enqueued_at, found.started_at, found.finished_at, found.last_attempted_at):
        assert timezone.is_aware(when) == settings.USE_TZ
        assert abs((timezone.now() - when).total_seconds()) < 20


def test_the_times_of_events_and_signals_are_aware() -> None:
    samples.plain.enqueue(1)
    run_until_idle()
    found = list(JobEvent.objects.values_list("name", "at"))
    assert {name for name, _ in found} >= {"job.enqueued", "job.started", "job.completed"}
    assert all(-1 < seconds_ago(at) < 20 for _, at in found)


@pytest.mark.parametrize("page", ["backgroundjoblease", "queue", "schedule", "worker", "job", "webhookdelivery", "job/targets"])
def test_every_list_of_the_admin_is_shown(admin_client: Client, page: str) -> None:
    JobFactory(running=True, target="t", history=[entry(attempt=1, worker="w", outcome="RETRY", began=None, ended=clock.now())])
    JobFactory(error=True, target="u")
    ScheduleFactory(next_at=FIRST)
    DeliveryFactory()
    BackgroundJobLease.objects.create(
        job_name="x", held_by_worker_id="w", lease_acquired_at=clock.now(), heartbeat_at=clock.now(), metadata={"last_run_at": "?"}
    )
    response = admin_client.get(f"/admin/jobqueue/{page}/")
    assert response.status_code == 200, page


def test_times_over_rest_have_an_offset() -> None:
    user = get_user_model().objects.create_superuser("root", password="x")
    client = Client()
    client.force_login(user)
    job = JobFactory(error=True, target="t", history=[entry(attempt=1, worker="w", outcome="ERROR", began=None, ended=clock.now())])
    pages = [f"/jobqueue/jobs/{job.pk}/", "/jobqueue/targets/t/", "/jobqueue/queues/"]
    texts = [text for page in pages for text in _texts(client.get(page).json()) if text[:2] == "20" and "T" in text]
    assert len(texts) >= 4
    assert all(datetime.fromisoformat(text).tzinfo is not None for text in texts)


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict | list):
        return [text for one in (value.values() if isinstance(value, dict) else value) for text in _texts(one)]
    return [value] if isinstance(value, str) else []


def test_the_zone_of_the_alias_changes_nothing(settings: Any) -> None:
    settings.USE_TZ = True  # else Django refuses a zone of the alias
    before = connections["default"].settings_dict["TIME_ZONE"]
    try:
        _let_alias_have("Asia/Kolkata")
        job = JobFactory(due=True)
        assert -5 < seconds_ago(Job.objects.get(pk=job.pk).created_at) < 20
        assert -1 < seconds_ago(Job.objects.get(pk=job.pk).run_at) < 20
        assert Job.objects.due().count() == 1
    finally:
        _let_alias_have(before)


def _let_alias_have(name: str | None) -> None:
    connection: Any = connections["default"]
    connection.settings_dict["TIME_ZONE"] = name
    for cached in ("timezone", "timezone_name"):
        connection.__dict__.pop(cached, None)
    connection.ensure_timezone()
