"""The duties of jobqueue, one `run_once` after the other, without threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError, connection
from django.utils import timezone

from jobqueue.duties.base import RESERVED
from jobqueue.duties.builtin import builtin
from jobqueue.duties.expire_stale_running_jobs import ExpireStaleRunningJobs
from jobqueue.duties.promote_due_jobs import CLOSE_PAUSE_SECONDS, PromoteDueJobs
from jobqueue.duties.release_parked_targets import ReleaseParkedTargets
from jobqueue.insight import duties
from jobqueue.lifecycle.expire import Expired
from jobqueue.models import BackgroundJobLease, Job
from tests.duties.asking import seconds_to_work
from tests.factories import JobFactory, ahead
from tests.pooler import POOLED
from tests.rivals import Rival


def run(duty: Any) -> Any:
    return duty.run_once(timezone.now())


def statuses() -> dict[int, str]:
    return dict(Job.objects.values_list("pk", "status"))


def test_every_duty_is_made_under_its_own_name(db: Any) -> None:
    for name, make in builtin(lambda: None, lambda lost: None, lambda: 0.0).items():
        duty = make()
        assert duty.name == name
        assert name in RESERVED
        assert make() is not duty, "each term begins with a fresh one"


@pytest.mark.django_db
@pytest.mark.parametrize("name", sorted(RESERVED))
def test_each_duty_takes_the_options_that_the_settings_give_it(settings: Any, name: str) -> None:
    settings.JOBQUEUE = {"DUTIES": {name: {"strategy": "everyone"}}}
    factories = builtin(lambda: None, lambda lost: None, lambda: 0.0)
    assert {one for one, make in factories.items() if make().strategy == "everyone"} == {name}
    factories[name]().run_once(timezone.now())
    settings.JOBQUEUE = {"DUTIES": {name: {"rotate_after_seconds": 3600}}}
    factories = builtin(lambda: None, lambda lost: None, lambda: 0.0)
    assert {one: make().rotate_after_seconds for one, make in factories.items() if make().rotate_after_seconds} == {name: 3600}


@pytest.mark.django_db
def test_a_duty_of_every_worker_has_no_leader_that_is_missed(settings: Any) -> None:
    long_ago = timezone.now() - timedelta(days=1)
    BackgroundJobLease.objects.create(
        job_name="collect_metrics", held_by_worker_id="gone", lease_acquired_at=long_ago, heartbeat_at=long_ago
    )
    assert len(duties.problems()) == 1
    settings.JOBQUEUE = {"DUTIES": {"collect_metrics": {"strategy": "everyone"}}}
    assert duties.problems() == []


# Promote


@pytest.mark.django_db
def test_due_jobs_are_promoted_and_the_next_run_is_at_the_next_due_time() -> None:
    duty = PromoteDueJobs()
    assert run(duty).items == 0
    due, soon = JobFactory(due=True), JobFactory(scheduled=True, run_at=ahead(seconds=0.9))
    assert run(duty).items == 1
    assert statuses() == {due.pk: "QUEUED", soon.pk: "PENDING"}
    assert run(duty).items == 0
    assert 0 < (seconds_to_work(duty) or 0) <= 0.9


@pytest.mark.django_db
def test_it_polls_closely_without_notifications_and_after_one(settings: Any) -> None:
    duty = PromoteDueJobs()
    notified = connection.vendor == "postgresql" and not POOLED
    assert duty.pause_seconds == (1.0 if notified else CLOSE_PAUSE_SECONDS)
    duty.notify()
    assert duty.pause_seconds == CLOSE_PAUSE_SECONDS
    settings.JOBQUEUE = {"NOTIFY": False}
    assert PromoteDueJobs().pause_seconds == CLOSE_PAUSE_SECONDS


@contextmanager
def trigger(body: str, only: Job | None = None) -> Iterator[None]:
    """Run some PL/pgSQL before each update of a job (or of one), and reset the session afterwards."""
    when = f" WHEN (OLD.id = {only.pk})" if only is not None else ""
    with connection.cursor() as cursor:
        cursor.execute(
            f"CREATE FUNCTION harm() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$;"
            f"CREATE TRIGGER harm BEFORE UPDATE ON jobqueue_job FOR EACH ROW{when} EXECUTE FUNCTION harm()"
        )
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("RESET statement_timeout; DROP TRIGGER harm ON jobqueue_job; DROP FUNCTION harm()")


@contextmanager
def refusing(judge: Callable[[str], None]) -> Iterator[None]:
    """Check statements on jobs before they are sent."""

    def wrapper(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        judge(f"{sql} {params}")
        return execute(sql, params, many, context)

    with connection.execute_wrapper(wrapper):
        yield


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_one_bad_row_is_set_aside_with_its_reason_and_the_rest_continues(caplog: pytest.LogCaptureFixture) -> None:
    jobs = [JobFactory(due=True) for _ in range(5)]
    with trigger("RAISE EXCEPTION 'bad row';", jobs[2]):
        duty = PromoteDueJobs()
        report = run(duty)
        assert (report.items, report.set_aside, report.again) == (4, 1, True)
        assert statuses() == {job.pk: "PENDING" if job is jobs[2] else "QUEUED" for job in jobs}
        assert f"Promoting due jobs failed for {jobs[2].pk}, which is set aside" in caplog.text
        assert "bad row" in caplog.text
        assert run(duty).items == run(duty).set_aside == 0, "it is left alone for a while"
        more = JobFactory(due=True)
        assert run(duty).items == 1
        assert statuses()[more.pk] == "QUEUED"


@pytest.mark.long
@pytest.mark.session
@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_a_time_out_makes_the_batches_smaller_until_they_pass() -> None:
    Job.objects.bulk_create([JobFactory.build(due=True) for _ in range(8)])
    with trigger("PERFORM pg_sleep(0.1); RETURN NEW;"):
        with connection.cursor() as cursor:
            cursor.execute("SET statement_timeout = '450ms'")
        duty = PromoteDueJobs()
        duty._promotion._batches.size = 8
        moved = [run(duty).items for _ in range(20)]
        assert moved[0] == 0
        assert sum(moved) == 8
        assert max(moved) <= 4


@pytest.mark.postgresql
@pytest.mark.django_db
def test_locked_rows_are_waited_for_without_a_hot_loop(rival: Rival) -> None:
    job = JobFactory(due=True)
    with rival.locking(job):
        report = run(PromoteDueJobs())
        assert (report.items, report.again, report.pause_seconds) == (0, False, CLOSE_PAUSE_SECONDS)
    assert run(PromoteDueJobs()).items == 1


@pytest.mark.django_db
def test_errors_of_the_connection_are_raised() -> None:
    from django.db import OperationalError

    def fail(sql: str) -> None:
        if sql.startswith("UPDATE"):
            raise OperationalError("the server is gone")

    JobFactory(due=True)
    with refusing(fail), pytest.raises(DatabaseError, match="the server is gone"):
        run(PromoteDueJobs())


# Expire


@pytest.mark.django_db
def test_lost_jobs_are_recovered_and_reported_after_the_workers_own_leases_were_renewed() -> None:
    told: list[str] = []
    lost = JobFactory(expired=True)

    def keep() -> None:
        told.append("kept")
        assert statuses()[lost.pk] == "RUNNING"

    def tell(found: Any) -> None:
        told.extend(one.status for one in found)
        assert isinstance(found[0], Expired)

    duty = ExpireStaleRunningJobs(keep, tell, lambda: 0.0)
    assert run(duty).items == 1
    assert told == ["kept", "QUEUED"]
    assert run(duty).items == 0
    assert told == ["kept", "QUEUED"], "no more work, so no notification"


@pytest.mark.django_db
def test_after_an_outage_no_lease_is_judged_before_the_heartbeats_had_time() -> None:
    import time

    lost = JobFactory(expired=True)
    before = [time.monotonic() + 60]
    duty = ExpireStaleRunningJobs(lambda: None, lambda lost: None, lambda: before[0])
    assert run(duty).items == 0
    assert statuses()[lost.pk] == "RUNNING"
    before[0] = 0.0
    assert run(duty).items == 1


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_a_lost_job_that_cannot_be_recovered_is_set_aside_and_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    jobs = [JobFactory(expired=True) for _ in range(3)]
    with trigger("RAISE EXCEPTION 'bad row';", jobs[1]):
        duty = ExpireStaleRunningJobs(lambda: None, lambda lost: None, lambda: 0.0)
        report = run(duty)
        assert (report.items, report.set_aside) == (2, 1)
        assert caplog.text.count("bad row") >= 1
        caplog.clear()
        assert (run(duty).items, run(duty).set_aside) == (0, 0)
        assert "bad row" not in caplog.text, "it is left alone for a while"


# Release


@pytest.mark.django_db
def test_lines_that_raw_sql_left_behind_continue() -> None:
    parked = JobFactory(waiting_for_target=True, target="t")
    assert run(ReleaseParkedTargets()).items == 1
    assert statuses()[parked.pk] == "QUEUED"
    assert run(ReleaseParkedTargets()).items == 0
    assert ReleaseParkedTargets.interval_seconds == timedelta(seconds=5).total_seconds()


@pytest.mark.session
@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_a_repair_that_times_out_asks_for_less_at_a_time() -> None:
    JobFactory(waiting_for_target=True, target="t")
    duty = ReleaseParkedTargets()
    with trigger("PERFORM pg_sleep(0.5); RETURN NEW;"):
        with connection.cursor() as cursor:
            cursor.execute("SET statement_timeout = '100ms'")
        before = duty._batch
        with pytest.raises(DatabaseError):
            run(duty)
        assert duty._batch == before // 2
    assert run(duty).items == 1
