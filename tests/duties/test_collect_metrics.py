"""The duty of samples: what it counts, how many rows it keeps, and that it costs the same however many jobs there are."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from jobqueue.core import histograms
from jobqueue.core.loads import OTHER, QUEUE, RINGS, TASK, TOTAL, Load
from jobqueue.duties import collect_metrics, sample_rings
from jobqueue.duties.collect_metrics import CollectMetrics
from jobqueue.insight.samples import recent, series, totals
from jobqueue.lifecycle.queues import pause_queue
from jobqueue.models import Job, Sample
from jobqueue.worker.duties.runner import DutyRunner
from tests.factories import JobFactory

pytestmark = pytest.mark.django_db

SPAN = 10
NOW = int(time.time()) // 900 * 900  # the end of a span of every length


def at(seconds: float) -> datetime:
    """Return a time, counted from `NOW`."""
    return datetime.fromtimestamp(NOW + seconds, UTC)


def began(seconds: float = 0) -> CollectMetrics:
    """Return a duty that has sampled everything until a time."""
    duty = CollectMetrics()
    duty.run_once(at(seconds + 2))
    return duty


def ended(finished: float, *, wait: float = 1.0, run: float = 2.0, number: int = 1, **columns: Any) -> None:
    """Make jobs that ended at a time."""
    given = {"status": "SUCCESS", "queue": "mail", "task": "tests.tasks.add", "created_at": at(-7200), **columns}
    times = {"enqueued_at": at(finished - run - wait), "started_at": at(finished - run), "finished_at": at(finished)}
    Job.objects.bulk_create(Job(**given, **times, lease_token=1) for _ in range(number))


def rows(kind: str = QUEUE, seconds: int = SPAN) -> dict[tuple[str, int], Load]:
    """Return the stored loads of a kind by name and begin, counted from `NOW`."""
    found = Sample.objects.filter(kind=kind, seconds=seconds)
    return {(row.name, row.begins - NOW if seconds else 0): Load.of_row(vars(row)) for row in found}


def test_a_sample_has_depth_age_and_running_jobs_of_each_queue_and_task() -> None:
    JobFactory(queue="mail", task="shop.a", enqueued_at=at(-90), created_at=at(-90))
    JobFactory(queue="mail", task="shop.b", enqueued_at=at(-30), created_at=at(-30))
    JobFactory(queue="mail", task="shop.b", running=True, created_at=at(-30))
    JobFactory(queue="reports", task="shop.b", running=True, created_at=at(-30))
    JobFactory(queue="later", scheduled=True, created_at=at(-30))
    assert CollectMetrics().run_once(at(2)).items == 4
    queues, tasks, since = rows(), rows(TASK), time.time() - NOW
    assert {name: (load.queued, load.running) for (name, _), load in queues.items()} == {"mail": (2, 1), "reports": (0, 1)}
    assert {name: (load.queued, load.running) for (name, _), load in tasks.items()} == {"shop.a": (1, 0), "shop.b": (1, 2)}
    assert queues["mail", -10].oldest_seconds == pytest.approx(90 + since, abs=10)
    assert tasks["shop.b", -10].oldest_seconds == pytest.approx(30 + since, abs=10)
    assert queues["reports", -10].oldest_seconds == 0


def test_a_sample_counts_what_came_and_ended_in_its_span() -> None:
    duty = began()
    for queue, created in (("mail", 0), ("mail", 9.5), ("mail", -1), ("mail", 10), ("reports", 5)):
        JobFactory(queue=queue, task=f"shop.{queue}", created_at=at(created), scheduled=True)
    ended(0, number=3)
    ended(9.5, number=2, status="ERROR")
    ended(5, status="CANCELED")
    ended(-0.5)
    ended(10)
    duty.run_once(at(12))
    found = rows()
    assert [*found] == [("mail", 0), ("reports", 0)]
    mail = found["mail", 0]
    assert (mail.enqueued, mail.succeeded, mail.failed, mail.canceled) == (2, 3, 2, 1)
    assert found["reports", 0].enqueued == 1
    assert {name: load.enqueued for (name, _), load in rows(TASK).items()} == {"shop.mail": 2, "shop.reports": 1, "tests.tasks.add": 0}
    assert mail.waits == histograms.of([1.0] * 5)
    assert (mail.wait_seconds, mail.run_seconds) == (pytest.approx(5, abs=0.01), pytest.approx(10, abs=0.01))
    duty.run_once(at(22))
    assert rows()["mail", 10].succeeded == 1, "what ended at the border is in the next span"


def test_the_quantiles_of_100000_jobs_are_within_one_bucket_of_the_exact_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect_metrics, "MAX_COUNTED", 200_000)
    numbers = range(1, 100_001)
    waits, runs = (
        [(number * step % 99_991 / 99_991.0) ** 3 * most for number in numbers] for step, most in ((7919, 700.0), (104_729, 60.0))
    )
    duty, database = began(), Job.objects.database
    wait, run = (f"power(n * {step} %% 99991 / 99991.0, 3) * {most}" for step, most in ((7919, 700.0), (104_729, 60.0)))
    moments = (database.at_epoch.replace("%s", f"({NOW} + 5 - {before})") for before in (f"{run} - {wait}", run, "0"))
    with connection.cursor() as cursor:
        cursor.execute(
            "WITH RECURSIVE n(n) AS (SELECT CAST(%s AS bigint) UNION ALL SELECT n + 1 FROM n WHERE n < 100000) INSERT INTO jobqueue_job"
            f" (task, queue, status, created_at, enqueued_at, started_at, finished_at) SELECT 'shop.a', 'mail', 'SUCCESS',"
            f" {database.at_epoch}, {', '.join(moments)} FROM n",
            [1, NOW - 7200],
        )
    assert duty.run_once(at(12)).items == 2
    load = rows()["mail", 0]
    assert (load.succeeded, sum(load.waits), sum(load.runs)) == (100_000,) * 3
    for counts, exact in ((load.waits, sorted(waits)), (load.runs, sorted(runs))):
        for share in (0.5, 0.95, 0.99):
            estimate = histograms.quantile(counts, share)
            assert estimate is not None
            assert abs(histograms.bucket(estimate) - histograms.bucket(exact[round(share * 100_000) - 1])) <= 1


def test_times_that_are_not_in_order_are_not_counted_but_the_job_is() -> None:
    duty = began()
    ended(5, wait=-1)
    ended(5, run=-1)
    ended(5, wait=2 * histograms.MAX_SECONDS)
    Job.objects.update(started_at=None)
    ended(5, run=2 * histograms.MAX_SECONDS)
    ended(5, wait=3, run=4)
    duty.run_once(at(12))
    load = rows()["mail", 0]
    assert (load.succeeded, load.waits, load.runs) == (5, histograms.of([3.0]), histograms.of([4.0]))


def test_after_a_flood_the_rate_is_that_of_the_newest_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect_metrics, "MAX_COUNTED", 100)
    duty = began()
    for number in range(500):  # fifty a second
        ended(number / 50, created_at=at(number / 50))
    duty.run_once(at(12))
    load = rows()["mail", 0]
    assert load.succeeded == pytest.approx(500, rel=0.05)
    assert sum(load.waits) == load.succeeded
    assert load.run_seconds == pytest.approx(1000, rel=0.05)
    assert load.enqueued == pytest.approx(250, rel=0.1), "the newest 100 came in four seconds, two of which are not in the span"


def test_the_spans_since_the_last_sample_are_all_counted_also_by_a_new_leader() -> None:
    duty = began()
    ended(5)
    duty.run_once(at(12))
    ended(15, number=2)
    ended(35, number=3)
    began(40)
    assert {begins: load.succeeded for (_, begins), load in rows().items()} == {0: 1, 10: 2, 30: 3}


def test_a_span_is_sampled_once() -> None:
    duty = began()
    ended(5)
    assert [duty.run_once(at(moment)).items for moment in (8, 12, 13, 21)] == [0, 2, 0, 0]
    assert {load.succeeded for load in rows(seconds=TOTAL).values()} == {1}
    assert began(10).run_once(at(13)).items == 0
    assert {load.succeeded for load in rows(seconds=TOTAL).values()} == {1}


def test_longer_spans_are_summed_and_the_total_is_kept() -> None:
    duty = began()
    for moment in (5, 25, 65, 895):
        ended(moment, run=moment)
    for moment in range(12, 1000, 10):
        duty.run_once(at(moment))
    assert {begins: load.succeeded for (_, begins), load in rows().items()} == {0: 1, 20: 1, 60: 1, 890: 1}
    assert {begins: load.succeeded for (_, begins), load in rows(seconds=60).items()} == {0: 2, 60: 1, 840: 1}
    [quarter], [total] = rows(seconds=900).values(), rows(seconds=TOTAL).values()
    assert quarter.succeeded == total.succeeded == 4
    assert quarter.runs == total.runs == histograms.of([5.0, 25.0, 65.0, 895.0])
    assert quarter.run_seconds == pytest.approx(990)


def test_a_new_leader_sums_what_the_one_before_has_left() -> None:
    duty = began()
    ended(5)
    duty.run_once(at(12))
    began(2000)
    assert [*rows(seconds=60)] == [("mail", 0)]
    assert [*rows(seconds=900)] == [("mail", 0)]


def test_the_rows_are_bounded_and_old_ones_are_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    for number, ring in enumerate([*RINGS.values(), *RINGS.values()]):
        Sample.objects.create(kind=QUEUE, name="old", seconds=ring.seconds, slot=number, begins=NOW - ring.kept * (1 + number // 3) - 60)
    Sample.objects.create(kind=QUEUE, name="old", seconds=TOTAL, slot=0, begins=NOW - 2 * 86400)
    monkeypatch.setattr(sample_rings, "MAX_FORGOTTEN", 4)
    duty = began(2)
    assert Sample.objects.count() == 3
    duty.run_once(at(22))
    assert Sample.objects.count() == 0


def test_a_ring_overwrites_itself() -> None:
    duty = began()
    for turn in range(2 * RINGS["1h"].kept // 1800):
        for moment in range(0, 1800, 300):
            ended(turn * 1800 + moment + 5)
            duty.run_once(at(turn * 1800 + moment + 12))
    assert 12 <= Sample.objects.filter(kind=QUEUE, seconds=SPAN).count() <= 13
    assert Sample.objects.filter(kind=QUEUE, seconds=TOTAL).count() == 1


def test_of_very_many_queues_the_busiest_have_samples_and_the_others_share_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_rings, "MAX_NAMES", 2)
    for queue, jobs in (("a", 1), ("b", 3), ("c", 2), ("d", 1)):
        JobFactory.create_batch(jobs, queue=queue, created_at=at(-60))
    duty = began()
    assert {name: load.queued for (name, _), load in rows().items()} == {"b": 3, "c": 2, OTHER: 2}
    JobFactory.create_batch(9, queue="a", created_at=at(-60))
    duty.run_once(at(12))
    assert rows()[OTHER, 0].queued == 11, "the set of names does not change with every sample"


def test_the_tasks_of_a_long_queue_are_estimated_from_its_first_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect_metrics, "MAX_BY_TASK", 20)
    for number in range(100):
        JobFactory(queue="mail", task=f"shop.{'ab'[number % 2]}", created_at=at(-60))
    began()
    assert rows()["mail", -10].queued == 100
    assert {name: load.queued for (name, _), load in rows(TASK).items()} == {"shop.a": 50, "shop.b": 50}


def test_a_system_at_rest_is_seen_by_one_statement_and_makes_no_rows(django_assert_num_queries: Any) -> None:
    ended(-600)
    pause_queue("mail")
    duty = began()
    duty.run_once(at(12))
    for moment in (22, 62, 902):
        with django_assert_num_queries(1):
            assert duty.run_once(at(moment)).items == 0
    assert not Sample.objects.exists()
    ended(905)
    duty.run_once(at(912))
    assert rows()["mail", 900].succeeded == 1


@pytest.mark.parametrize("state", ["queued", "running", "error"])
def test_any_change_in_an_idle_system_is_in_the_next_sample(state: str) -> None:
    job = JobFactory(queue="mail", scheduled=True, created_at=at(-600))
    duty = began()
    duty.run_once(at(12))
    place: dict[str, Any] = {"status": state.upper(), "waiting_for": "", "finished_at": at(15) if state == "error" else None}
    if state == "running":
        place |= {"lease_owner": "worker-1", "lease_token": 1, "lease_expires_at": at(60), "heartbeat_at": at(15)}
    Job.objects.filter(pk=job.pk).update(**place)
    duty.run_once(at(22))
    assert [*rows()] == [("mail", 10)]


def test_the_first_sample_of_an_empty_log_takes_few_statements() -> None:
    JobFactory(created_at=at(-30))
    with CaptureQueriesContext(connection) as queries:
        assert CollectMetrics().run_once(at(2)).items == 2
    assert len(queries) < 60


def test_a_clock_that_was_set_back_stops_no_samples() -> None:
    duty = began(600)
    ended(5)
    duty.run_once(at(12))
    assert rows()["mail", 0].succeeded == 1


@pytest.mark.postgresql
def test_a_sample_costs_the_same_however_many_jobs_have_ended_or_were_enqueued() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO jobqueue_job (task, queue, status, created_at, finished_at) SELECT 'tests.tasks.add', 'mail', 'SUCCESS',"
            " now() - interval '1 hour', to_timestamp(%s) - n * interval '10 milliseconds' FROM generate_series(1, 100000) AS n",
            [NOW],
        )
    JobFactory(queue="reports", created_at=at(-3600))
    duty = began(-20)
    assert pages(duty, at(-8), counts=2) < 2500
    duty.run_once(at(12))
    assert pages(duty, at(22), counts=1) < 50, "no jobs were enqueued since: only the ends are read"


def pages(duty: CollectMetrics, now: datetime, counts: int) -> int:
    """Return how many pages the counts of a sample read, by running each again."""
    with CaptureQueriesContext(connection) as queries:
        duty.run_once(now)
    looks = [one["sql"].split("; ")[-1] for one in queries.captured_queries if "AS newest" in one["sql"]]
    assert len(looks) == counts
    found = 0
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_sort = off")
        for look in looks:
            cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {look}")
            plan = cursor.fetchone()[0][0]["Plan"]
            found += plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
    return int(found)


def test_series_and_recent_loads_read_what_was_sampled() -> None:
    moment = int(time.time()) // 10 * 10 - 60 - NOW
    duty = began(moment)
    ended(moment + 5, number=4, wait=0.5, run=8)
    duty.run_once(at(moment + 12))
    found = series(QUEUE, "mail")
    [busy] = [point for point in found.points if point.succeeded]
    assert (len(found.points), busy.at, busy.seconds, busy.succeeded) == (360, at(moment), 10, 4)
    assert found.total.succeeded == 4
    assert busy.wait_p50 == pytest.approx(0.5, rel=0.4)
    assert busy.run_p99 == pytest.approx(8, rel=0.4)
    assert {point.wait_p50 for point in found.points if point is not busy} == {None}
    [mail] = recent(QUEUE)
    assert (mail.name, mail.figures.succeeded) == ("mail", 4)
    assert [(kind, name, load.succeeded) for kind, name, load in totals()] == [(QUEUE, "mail", 4), (TASK, "tests.tasks.add", 4)]
    assert len(series(QUEUE, "mail", "24h").points) == 1440
    assert len(series(TASK, "unknown", "14d").points) == 1344


def test_a_row_that_cannot_be_read_counts_as_nothing_and_stops_no_other() -> None:
    moment = int(time.time()) // 10 * 10 - 60
    place = {"kind": QUEUE, "seconds": SPAN, "begins": moment}
    Sample.objects.create(**place, name="mail", slot=1, waits="no", runs="1,-1", run_seconds=float("inf"), succeeded=3)
    Sample.objects.create(**place, name="reports", slot=1, waits="1", succeeded=2)
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("UPDATE jobqueue_sample SET wait_seconds = 'x', failed = x'00' WHERE name = 'mail'")
    assert {one.name: (one.figures.succeeded, one.figures.wait_p50 is None) for one in recent(QUEUE)} == {
        "mail": (3, True),
        "reports": (2, False),
    }


def test_the_age_of_what_waits_is_that_of_the_moment() -> None:
    JobFactory(queue="mail", enqueued_at=datetime.now(UTC) - timedelta(seconds=90), created_at=at(-3600))
    began()
    assert rows()["mail", -10].oldest_seconds == pytest.approx(90, abs=5)


def test_a_new_leader_takes_its_first_sample_after_a_span_and_misses_none() -> None:
    began(0).run_once(at(12))
    runner = DutyRunner(CollectMetrics(), None, "host:1", lambda: None)
    asked = time.monotonic()
    assert not runner.is_due(asked)
    assert runner.is_due(asked + SPAN)
    ended(15, number=2)
    ended(25)
    runner.duty.run_once(at(32))
    assert {begins: load.succeeded for (_, begins), load in rows().items() if load.succeeded} == {10: 2, 20: 1}
