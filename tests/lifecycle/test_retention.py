"""Ended jobs become stale and are deleted, by age, outcome and queue; waiting, running, paused and resumed jobs stay."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from jobqueue import clock, signals
from jobqueue.core.retention_rules import OUTCOMES, Rules, after
from jobqueue.db import ended_jobs
from jobqueue.lifecycle import control
from jobqueue.models import Job
from jobqueue.retention import apply, erase
from jobqueue.retention.apply import Sweep, by_settings
from jobqueue.retention.erase import Pace
from tests.factories import JobFactory
from tests.lifecycle.sweeps import DAY, LONG_AGO, deleting, ended, heard, left, many, marking
from tests.rivals import Rival
from tests.shop.models import Label, Note, Parcel, Receipt


@contextlib.contextmanager
def refusing(job: Job) -> Iterator[None]:
    """Make the database refuse the deletion of one job, as a project's trigger may."""
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            condition = f"WHEN old.id = {job.pk} BEGIN SELECT RAISE(ABORT, 'kept by the law'); END"
            cursor.execute(f"CREATE TRIGGER keep_row BEFORE DELETE ON jobqueue_job {condition}")
        else:
            cursor.execute(
                "CREATE FUNCTION keep_row() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'kept by the law'; END $$;"
                f"CREATE TRIGGER keep_row BEFORE DELETE ON jobqueue_job FOR EACH ROW WHEN (old.id = {job.pk}) EXECUTE FUNCTION keep_row()"
            )
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"DROP TRIGGER keep_row{'' if connection.vendor == 'sqlite' else ' ON jobqueue_job; DROP FUNCTION keep_row()'}")


# What goes and what stays


@pytest.mark.django_db
@pytest.mark.parametrize("outcome", ["success", "error", "canceled"])
def test_old_ended_jobs_are_deleted_and_recent_ones_stay(outcome: str) -> None:
    old, young = ended(outcome), ended(outcome, timedelta(hours=23))
    done = deleting().run(60)
    assert (done.deleted, done.stale, done.set_aside, done.more) == (1, 0, 0, False)
    assert left() == {young.pk}
    assert old.pk not in left()


@pytest.mark.django_db
@pytest.mark.parametrize(
    "place",
    ["queued", "scheduled", "due", "waiting_for_children", "waiting_for_target", "waiting_for_retry", "running", "expired", "paused"],
)
def test_jobs_that_have_not_ended_are_never_touched(place: str) -> None:
    job = JobFactory(**{place: True}, created_at=clock.now() - LONG_AGO)
    Job.objects.filter(pk=job.pk).update(finished_at=clock.now() - LONG_AGO)  # a paused job may have ended once
    done = Sweep(after(OUTCOMES, 0), after(OUTCOMES, 0)).run(60)
    assert (done.deleted, done.stale) == (0, 0)
    assert Job.objects.get(pk=job.pk).stale_at is None


@pytest.mark.django_db
def test_each_queue_and_outcome_has_its_own_time(settings: Any) -> None:
    settings.JOBQUEUE = {
        "DELETE_AFTER": {"SUCCESS": 3600, "ERROR": 10 * DAY},
        "QUEUE_RETENTION": {"mail": {"DELETE_AFTER": {"ERROR": 0}}, "audit": {"DELETE_AFTER": None}},
    }
    kept = [ended("error"), ended("canceled"), ended("success", timedelta(minutes=59)), ended(queue="audit"), ended("error", queue="audit")]
    gone = [ended(), ended("error", timedelta(0), queue="mail"), ended(queue="mail")]
    assert by_settings().run(60).deleted == len(gone)
    assert left() == {job.pk for job in kept}


@pytest.mark.django_db
def test_without_rules_nothing_is_done_and_nothing_asked(settings: Any) -> None:
    settings.JOBQUEUE = {"STALE_AFTER": {}, "DELETE_AFTER": {}}
    ended()
    with CaptureQueriesContext(connection) as queries:
        assert by_settings().run(60) == apply.Swept()
    assert not queries.captured_queries


@pytest.mark.django_db
def test_a_time_of_zero_deletes_at_once() -> None:
    ended(ago=timedelta(milliseconds=10))  # SQLite has whole milliseconds
    assert deleting(0).run(60).deleted == 1


@pytest.mark.django_db
def test_a_job_that_is_resumed_between_the_query_and_the_deletion_stays() -> None:
    resumed, failed_again, canceled = ended("error"), ended("error"), ended("error")
    found = ended_jobs.ended_before(Job.objects.database, DAY, None, 100)
    assert control.resume(resumed.pk)
    control.cancel(canceled.pk)
    Job.objects.filter(pk=failed_again.pk).update(finished_at=clock.now())
    done = erase.erase(found, DAY, None, Pace())
    assert not done.done
    assert left() == {resumed.pk, failed_again.pk, canceled.pk}


# Stale


@pytest.mark.django_db
def test_a_job_becomes_stale_once() -> None:
    old, young = ended(), ended(ago=timedelta(hours=1))
    sweep = marking()
    with heard(signals.job_stale) as told:
        assert (sweep.run(60).stale, sweep.run(60).stale, marking().run(60).stale) == (1, 0, 0)
    assert [one["job_id"] for one in told] == [old.pk]
    first = Job.objects.get(pk=old.pk).stale_at
    assert first is not None
    assert Job.objects.get(pk=young.pk).stale_at is None
    marking().run(60)
    assert Job.objects.get(pk=old.pk).stale_at == first


@pytest.mark.django_db
@pytest.mark.parametrize("verb", [control.resume, control.cancel])
def test_a_job_that_a_person_moves_on_is_stale_no_more(verb: Any) -> None:
    job = ended("error")
    marking().run(60)
    assert verb(job.pk)
    assert Job.objects.get(pk=job.pk).stale_at is None


@pytest.mark.django_db
def test_jobs_that_are_about_to_be_deleted_are_not_marked_before() -> None:
    ended()
    with heard(signals.job_stale) as told:
        done = Sweep(after(OUTCOMES, 1), after(OUTCOMES, DAY)).run(60)
    assert (done.deleted, done.stale, told) == (1, 0, [])


# Targets and children


@pytest.mark.django_db
@pytest.mark.parametrize("holds", [True, False])
def test_a_job_in_error_that_holds_up_a_line_is_kept_for_a_person_to_decide(holds: bool) -> None:
    job, _ = ended("error", target="customer:7", holds_target=holds), ended("success", target="customer:7")
    waiting = JobFactory(waiting_for_target=True)
    assert deleting().run(60).deleted == 1
    assert left() == {job.pk, waiting.pk}
    assert Job.objects.get(pk=waiting.pk).status == "PENDING"


@pytest.mark.django_db
def test_children_go_with_the_job_and_what_outlives_it_stays() -> None:
    job, other = ended(), ended(ago=timedelta(0))
    for one in (job, other):
        for _ in range(3):
            Label.objects.create(parcel=Parcel.objects.create(job=one))
    note = Note.objects.create(job=job)
    assert deleting().run(60).deleted == 1
    assert set(Parcel.objects.values_list("job_id", flat=True)) == {other.pk}
    assert Label.objects.count() == 3
    note.refresh_from_db()
    assert note.job_id is None


@pytest.mark.django_db
def test_a_job_that_something_protects_is_kept_with_a_reason_and_not_tried_in_each_run(caplog: pytest.LogCaptureFixture) -> None:
    kept = many(3)
    gone = many(30)
    for job_id in kept:
        Receipt.objects.create(job_id=job_id)
    sweep = deleting()
    first, second = sweep.run(60), sweep.run(60)
    assert (first.deleted, first.set_aside, first.more) == (30, 3, False)
    assert (second.deleted, second.set_aside, second.more) == (0, 0, False)
    assert left() == {*kept}
    assert not {*gone} & left()
    (record,) = [one for one in caplog.records if "Retention keeps" in one.getMessage()]
    assert f"keeps 3 jobs that rows of shop.Receipt refer to with PROTECT: {kept[0]}, " in record.getMessage()


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
def test_one_job_that_the_database_refuses_keeps_no_other_and_is_named(caplog: pytest.LogCaptureFixture) -> None:
    many(20)
    bad = ended()
    many(20)
    with refusing(bad):
        sweep = deleting()
        first, second = sweep.run(60), sweep.run(60)
    assert (first.deleted, first.set_aside, first.more) == (40, 1, False)
    assert (second.deleted, second.set_aside, second.more) == (0, 0, False)
    assert left() == {bad.pk}
    (record,) = [one for one in caplog.records if "Retention keeps" in one.getMessage()]
    assert f"Retention keeps job {bad.pk} ({bad.task}): " in record.getMessage()
    assert "kept by the law" in record.getMessage()


@pytest.mark.django_db(transaction=True)
def test_the_children_of_a_job_that_has_very_many_go_in_batches_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erase, "MAX_CHILDREN", 10)
    jobs = many(6)
    Parcel.objects.bulk_create([Parcel(job_id=job_id) for job_id in jobs for _ in range(4)])
    Parcel.objects.bulk_create([Parcel(job_id=jobs[2]) for _ in range(33)])
    sweep = deleting()
    with CaptureQueriesContext(connection) as queries:
        runs = [sweep.run(60), sweep.run(60)]
    assert [run.deleted for run in runs] == [5, 1]
    assert [run.more for run in runs] == [True, False]
    assert not left()
    assert not Parcel.objects.exists()
    gone = [query for query in queries.captured_queries if query["sql"].startswith('DELETE FROM "shop_parcel"')]
    assert len(gone) >= 8  # 33 + 4 in fives, and the rest


# Batches


@pytest.mark.long
@pytest.mark.django_db
def test_many_that_ended_at_one_moment_are_all_found_past_those_that_stay() -> None:
    kept = many(700, queue="audit")
    many(700)
    many(300, status="ERROR")
    sweep = Sweep(Rules(), Rules({"SUCCESS": DAY, "ERROR": DAY}, {"audit": {"SUCCESS": None}}))
    assert sweep.run(60).deleted == 1000
    assert left() == {*kept}


@pytest.mark.long
@pytest.mark.django_db
def test_the_time_of_a_run_is_bounded_and_the_next_continues() -> None:
    many(1200)
    sweep = deleting()
    runs = [sweep.run(0.0)]
    while runs[-1].more:
        runs.append(sweep.run(0.0))
    assert sum(run.deleted for run in runs) == 1200
    assert max(run.deleted for run in runs) <= 500
    assert sweep.run(0.0) == apply.Swept()


@pytest.mark.long
@pytest.mark.django_db
def test_kept_jobs_are_read_only_once() -> None:
    many(1200, queue="audit")
    ended(ago=timedelta(days=1, seconds=1))
    sweep = Sweep(Rules(), Rules({"SUCCESS": DAY}, {"audit": {"SUCCESS": None}}))
    looks = []
    for _ in range(3):
        with CaptureQueriesContext(connection) as queries:
            sweep.run(60)
        looks.append([one["sql"] for one in queries.captured_queries if ".finished_at, id LIMIT" in one["sql"]])
    assert [len(look) for look in looks] == [3, 1, 1]
    assert Job.objects.count() == 1200


@pytest.mark.django_db
def test_a_run_that_was_written_late_is_found_in_the_next_run() -> None:
    ended(ago=timedelta(days=1, seconds=1))
    sweep = deleting()
    assert sweep.run(60).deleted == 1
    late, lost = ended(ago=timedelta(days=1, seconds=60)), ended(ago=timedelta(days=1, seconds=600))
    assert sweep.run(60).deleted == 1
    assert left() == {lost.pk}
    assert late.pk not in left()


@pytest.mark.django_db
def test_a_walk_restarts_from_time_to_time_less_often_if_it_found_less(monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = deleting()
    sweep.run(60)
    lost = ended(ago=timedelta(days=30))
    assert sweep.run(60).deleted == 0
    [walk] = sweep._walks
    assert walk._anew_seconds == apply.ANEW_SECONDS
    walk._began_anew -= apply.ANEW_SECONDS + 1
    assert sweep.run(60).deleted == 1
    assert lost.pk not in left()
    assert walk._anew_seconds == 2 * apply.ANEW_SECONDS  # the walk before had found nothing
    walk._began_anew -= 2 * apply.ANEW_SECONDS + 1
    sweep.run(60)
    assert walk._anew_seconds == apply.ANEW_SECONDS


# Locks of other transactions


@pytest.mark.postgresql
def test_a_locked_job_is_skipped_and_deleted_in_the_next_run(rival: Rival) -> None:
    job, other = ended(), ended()
    sweep = Sweep(after(OUTCOMES, 5), after(OUTCOMES, DAY))
    with rival.locking(job):
        assert sweep.run(60).deleted == 1
        assert left() == {job.pk}
        assert Job.objects.get(pk=job.pk).stale_at is None
    done = sweep.run(60)
    assert (done.deleted, done.more) == (1, False)
    assert other.pk not in left()


@pytest.mark.postgresql
def test_a_job_that_is_given_a_child_meanwhile_is_not_waited_for(rival: Rival) -> None:
    job = ended()
    sweep = deleting()
    with rival.transaction():
        rival.do(lambda: connection.cursor().execute("SELECT 1 FROM jobqueue_job WHERE id = %s FOR KEY SHARE", [job.pk]))
        assert sweep.run(60).deleted == 0
    assert sweep.run(60).deleted == 1


@pytest.mark.postgresql
def test_a_job_with_a_locked_child_is_not_waited_for(rival: Rival) -> None:
    job, other = ended(), ended()
    parcel = Parcel.objects.create(job=job)
    Parcel.objects.create(job=other)
    sweep = deleting()
    with rival.transaction():
        rival.do(lambda: Parcel.objects.select_for_update().get(pk=parcel.pk))
        assert sweep.run(60).deleted == 1
        assert left() == {job.pk}
    assert sweep.run(60).deleted == 1


@pytest.mark.long
@pytest.mark.session
@pytest.mark.postgresql
def test_a_statement_that_takes_too_long_is_tried_again_in_halves(transactional_db: None) -> None:
    many(64)
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION slow_row() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.02); RETURN old; END $$;"
            "CREATE TRIGGER slow_row BEFORE DELETE ON jobqueue_job FOR EACH ROW EXECUTE FUNCTION slow_row();"
            "SET statement_timeout = '500ms'"
        )
    try:
        sweep = deleting()
        assert sweep.run(60).deleted == 64
        assert sweep._pace.size < erase.BATCH
    finally:
        connection.close()
        with connection.cursor() as cursor:
            cursor.execute("DROP TRIGGER slow_row ON jobqueue_job; DROP FUNCTION slow_row()")
    assert not left()
