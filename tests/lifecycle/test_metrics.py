"""Samples of queues: their values, how many are kept, and that a sample costs the same however many jobs there are."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from jobqueue.db import Now
from jobqueue.duties import collect_metrics as metrics
from jobqueue.duties.base import Report
from jobqueue.duties.collect_metrics import CollectMetrics, Collector
from jobqueue.insight.metrics import SLOT_SECONDS, SLOTS, samples
from jobqueue.lifecycle.queues import pause_queue
from jobqueue.models import Job, QueueSample
from tests.factories import JobFactory

pytestmark = pytest.mark.django_db


def at(turn: int) -> datetime:
    """Return the time of a turn of the duty."""
    return datetime.fromtimestamp(1_800_000_000 + turn * SLOT_SECONDS, tz=timezone.get_current_timezone())


def waited(collector: Collector, seconds: float) -> None:
    """Move the previous sample back by this time."""
    assert collector._sampled_at is not None
    collector._sampled_at -= seconds


def ago(seconds: float) -> Any:
    return Now() - timedelta(seconds=seconds)


def test_a_sample_has_depth_age_and_running_jobs() -> None:
    JobFactory(queue="mail", enqueued_at=timezone.now() - timedelta(seconds=90))
    JobFactory(queue="mail")
    JobFactory(queue="mail", running=True)
    JobFactory(queue="reports", running=True)
    JobFactory(queue="later", scheduled=True)
    assert CollectMetrics().run_once(at(0)) == Report(items=2)
    mail, reports = samples()
    assert (mail.queue, mail.queued, mail.running) == ("mail", 2, 1)
    assert mail.oldest_seconds == pytest.approx(90, abs=5)
    assert (reports.queue, reports.queued, reports.running, reports.oldest_seconds) == ("reports", 0, 1, None)
    assert (mail.enqueued_per_second, mail.finished_per_second, mail.failed_per_second) == (None, None, None)
    assert samples("mail") == [mail]
    assert samples("else") == []


def test_rates_are_those_since_the_previous_sample() -> None:
    collector = Collector()
    collector.write_samples(at(0))
    waited(collector, 10)
    recent, before = ago(5), ago(60)
    for _ in range(20):
        JobFactory(queue="mail", created_at=recent)
    JobFactory(queue="mail", created_at=before)
    JobFactory.create_batch(30, queue="mail", success=True, finished_at=recent, created_at=before)
    JobFactory.create_batch(10, queue="mail", error=True, finished_at=recent, created_at=before)
    JobFactory(queue="mail", success=True, finished_at=before, created_at=before)
    JobFactory(queue="mail", success=True, finished_at=Now(), created_at=before)  # counted by the next sample
    collector.write_samples(at(1))
    [found] = samples("mail")
    came, finished, failed = found.enqueued_per_second, found.finished_per_second, found.failed_per_second
    assert came == pytest.approx(2.0, rel=0.3)  # time has passed while the jobs were made
    assert finished is not None
    assert (came, failed) == (pytest.approx(finished / 2), pytest.approx(finished / 4))


def test_a_queue_of_which_all_has_ended_is_seen_and_a_quiet_one_has_rates_of_zero() -> None:
    collector = Collector()
    collector.write_samples(at(0))
    waited(collector, 10)
    JobFactory(queue="quick", success=True, finished_at=ago(5), created_at=ago(5))
    JobFactory(queue="quiet", created_at=ago(60))
    assert collector.write_samples(at(1)) == 2
    quick, quiet = samples()
    assert (quick.queued, quick.finished_per_second) == (0, pytest.approx(0.1, rel=0.3))
    assert (quiet.queued, quiet.enqueued_per_second, quiet.finished_per_second) == (1, 0.0, 0.0)


def test_after_a_flood_the_rate_is_that_of_the_newest_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "MAX_COUNTED", 100)
    collector = Collector()
    collector.write_samples(at(0))
    waited(collector, 10)
    moments = [ago(10 - number / 50) for number in range(500)]  # fifty a second
    Job.objects.bulk_create(
        Job(task="tests.tasks.add", queue="mail", status="SUCCESS", finished_at=moment, created_at=moment) for moment in moments
    )
    collector.write_samples(at(1))
    [found] = samples("mail")
    assert found.finished_per_second == pytest.approx(50, rel=0.2)
    assert found.enqueued_per_second == pytest.approx(50, rel=0.2)


@pytest.mark.slow
def test_the_ring_is_bounded() -> None:
    JobFactory(queue="mail")
    collector = Collector()
    for turn in range(SLOTS + 20):
        collector.write_samples(at(turn))
    assert QueueSample.objects.count() == SLOTS
    assert len({row.slot for row in QueueSample.objects.all()}) == SLOTS


def test_a_queue_that_is_gone_leaves_the_ring_after_an_hour() -> None:
    JobFactory(queue="mail")
    Collector().write_samples(at(0))
    Job.objects.all().delete()
    Collector().write_samples(at(1))
    assert QueueSample.objects.count() == 1
    QueueSample.objects.update(at=timezone.now() - timedelta(seconds=SLOTS * SLOT_SECONDS + 1))
    assert samples() == []
    Collector().write_samples(at(2))
    assert not QueueSample.objects.exists()


def test_of_very_many_queues_the_busiest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "MAX_QUEUES", 2)
    for queue, jobs in (("a", 1), ("b", 3), ("c", 2)):
        JobFactory.create_batch(jobs, queue=queue)
    assert Collector().write_samples(at(0)) == 2
    assert [one.queue for one in samples()] == ["b", "c"]


def test_only_what_was_asked_for_is_returned() -> None:
    JobFactory()
    Collector().write_samples(at(0))
    Collector().write_samples(at(1))
    QueueSample.objects.filter(slot=QueueSample.objects.order_by("slot").values_list("slot", flat=True)[0]).update(at=ago(100))
    assert len(samples(seconds=50)) == 1
    assert len(samples()) == 2


def test_a_system_at_rest_is_seen_by_one_statement_until_something_comes(django_assert_num_queries: Any) -> None:
    JobFactory(queue="mail", success=True, finished_at=ago(600), created_at=ago(600))
    collector = Collector()
    for turn in range(4):
        collector.write_samples(at(turn))
        waited(collector, 10)
    QueueSample.objects.all().delete()
    with django_assert_num_queries(1):
        assert collector.write_samples(at(4)) == 0
    waited(collector, 10)
    JobFactory(queue="mail", success=True, finished_at=ago(5), created_at=ago(600))
    assert collector.write_samples(at(5)) == 1, "one that came and is gone"
    assert [one.finished_per_second for one in samples()] == [pytest.approx(0.1, rel=0.2)]


def test_a_queue_that_gets_a_row_in_an_idle_system_is_in_the_next_sample(django_assert_num_queries: Any) -> None:
    collector = Collector()
    for turn in range(4):
        collector.write_samples(at(turn))
        waited(collector, 10)
    assert samples() == []
    pause_queue("mail")
    assert collector.write_samples(at(4)) == 1
    assert [(one.queue, one.queued, one.finished_per_second) for one in samples()] == [("mail", 0, 0.0)]


@pytest.mark.parametrize("state", ["queued", "running", "error"])
def test_any_change_in_an_idle_system_is_in_the_next_sample(state: str) -> None:
    collector = Collector()
    job = JobFactory(queue="mail", scheduled=True, created_at=ago(600))
    for turn in range(4):
        collector.write_samples(at(turn))
        waited(collector, 10)
    QueueSample.objects.all().delete()
    place: dict[str, Any] = {"status": state.upper(), "waiting_for": "", "finished_at": ago(5) if state == "error" else None}
    if state == "running":
        place |= {"lease_owner": "worker-1", "lease_token": 1, "lease_expires_at": ago(-30), "heartbeat_at": Now()}
    Job.objects.filter(pk=job.pk).update(**place)
    assert collector.write_samples(at(4)) == 1


@pytest.mark.postgresql
def test_a_sample_costs_the_same_however_many_jobs_have_ended_or_were_enqueued() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO jobqueue_job (task, queue, status, created_at, finished_at) SELECT 'tests.tasks.add', 'mail', 'SUCCESS',"
            " now() - interval '1 hour', now() - interval '1 hour' + n * interval '10 milliseconds' FROM generate_series(1, 100000) AS n"
        )
    collector = Collector()
    collector.write_samples(at(0))
    waited(collector, 10)
    assert cost(collector, at(1), counts=2) < 1000
    assert cost(collector, at(2), counts=1) < 50, "no jobs were enqueued since: only the ends are read"


def cost(collector: Collector, moment: datetime, counts: int) -> int:
    """Return how many pages the counts of a sample read, by running each again."""
    waited(collector, 10)
    with CaptureQueriesContext(connection) as queries:
        collector.write_samples(moment)
    looks = [one["sql"].split("; ")[-1] for one in queries.captured_queries if "FILTER" in one["sql"]]
    assert len(looks) == counts
    found = 0
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_sort = off")
        for look in looks:
            cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {look}")
            plan = cursor.fetchone()[0][0]["Plan"]
            found += plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
    return int(found)
