"""Enqueue: rows in the caller's transaction, one live job per unique key."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from jobqueue import clock
from jobqueue.core import states
from jobqueue.lifecycle.enqueue import Call, JobSpec, enqueue, enqueue_many
from jobqueue.models import Job
from tests.claiming import claim
from tests.factories import JobFactory
from tests.rivals import Rival, together

SPEC = JobSpec(task="tests.tasks.add", args="[1]")


@pytest.mark.django_db
def test_a_job_is_queued_with_what_it_was_given() -> None:
    own = {"tenant": "acme", "target": "t"}
    spec = JobSpec("a.b", '[1, "é"]', '{"c": null}', "mail", 7, None, "key", 3, "hold", metadata='{"m": 1}', options='{"o": 2}', **own)
    made = enqueue(spec)
    job = Job.objects.get(pk=made.job_id)
    assert made.created
    assert made.created_at == job.created_at
    assert (job.task, job.args, job.kwargs, job.queue, job.priority) == ("a.b", [1, "é"], {"c": None}, "mail", 7)
    assert (job.unique_key, job.max_attempts, job.recovery, job.metadata, job.options) == ("key", 3, "hold", {"m": 1}, {"o": 2})
    assert (job.tenant, job.target, job.holds_target) == ("acme", "t", False)
    assert (job.place, job.claim_rank, job.attempt) == (states.QUEUED, -7, 0)


@pytest.mark.django_db
@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize(
    ("run_after", "place", "seconds"),
    [
        (None, states.QUEUED, None),
        (timedelta(), states.QUEUED, None),
        (timedelta(seconds=-5), states.QUEUED, None),
        (timedelta(minutes=5), states.PENDING_TIME, 300),
        ("a moment", states.PENDING_TIME, 600),
    ],
)
def test_a_time_ahead_makes_it_wait(run_after: timedelta | str | None, place: states.Place, seconds: int | None, many: bool) -> None:
    after = clock.now() + timedelta(minutes=10) if isinstance(run_after, str) else run_after
    spec = JobSpec("a.b", run_after=after)
    made = enqueue_many(spec, [Call("[]", "{}")])[0] if many else enqueue(spec)
    job = Job.objects.get(pk=made.job_id)
    assert job.place == place
    if seconds is None:
        assert job.run_at is None
    else:
        assert seconds - 5 < (job.run_at - clock.now()).total_seconds() <= seconds


@pytest.mark.django_db
@pytest.mark.parametrize("trait", ["queued", "scheduled", "running", "expired", "paused", "waiting_for_children", "waiting_for_target"])
def test_a_live_job_with_the_key_is_returned_in_place_of_a_second(trait: str) -> None:
    job = JobFactory(**{trait: True, "unique_key": "report:7"})
    made = enqueue(JobSpec("a.b", unique_key="report:7"))
    assert (made.job_id, made.created) == (job.pk, False)
    assert Job.objects.count() == 1
    assert Job.objects.exists(), "the caller's transaction stays usable"


@pytest.mark.django_db
@pytest.mark.parametrize("trait", ["success", "error", "canceled"])
def test_an_ended_job_has_given_its_key_back(trait: str) -> None:
    JobFactory(**{trait: True, "unique_key": "report:7"})
    assert enqueue(JobSpec("a.b", unique_key="report:7")).created


@pytest.mark.django_db
def test_a_job_that_was_deleted_has_given_its_key_back() -> None:
    Job.objects.filter(pk=JobFactory(unique_key="report:7").pk).delete()
    assert enqueue(JobSpec("a.b", unique_key="report:7")).created


@pytest.mark.django_db
def test_many_jobs_get_their_own_arguments_in_order() -> None:
    calls = [Call(f'[{number}, "tab\\t \\\\ é\\n"]', f'{{"n": {number}}}') for number in range(50)]
    made = enqueue_many(SPEC, calls)
    jobs = list(Job.objects.order_by("pk"))
    assert [job.pk for job in jobs] == [one.job_id for one in made]
    assert [(job.args, job.kwargs) for job in jobs] == [([number, "tab\t \\ é\n"], {"n": number}) for number in range(50)]
    assert {one.created for one in made} == {True}
    assert enqueue_many(SPEC, []) == []


@pytest.mark.postgresql
@pytest.mark.django_db
def test_the_sequence_is_read_once_for_many_jobs() -> None:
    with CaptureQueriesContext(connection) as captured:
        enqueue_many(SPEC, [Call("[]", "{}")] * 3)
    [taking] = [query["sql"] for query in captured if "nextval" in query["sql"]]
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (VERBOSE) {taking}")
        plan = "\n".join(row[0] for row in cursor.fetchall())
    assert re.search(r"nextval\((?!.*pg_get_serial_sequence)", plan), plan
    assert len([query for query in captured if "SAVEPOINT" not in query["sql"]]) == 3  # the ids, COPY, the events


@pytest.mark.django_db
def test_many_jobs_with_keys_return_the_live_ones() -> None:
    live = JobFactory(unique_key="a")
    made = enqueue_many(SPEC, [Call("[]", "{}", key) for key in ("a", "b", "b", "")])
    assert [one.created for one in made] == [False, True, False, True]
    assert made[0].job_id == live.pk
    assert made[1].job_id == made[2].job_id


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("many", [False, True])
def test_jobs_of_a_rolled_back_transaction_never_existed(many: bool) -> None:
    with transaction.atomic():
        if many:
            enqueue_many(SPEC, [Call("[]", "{}")] * 3)
        else:
            enqueue(SPEC)
        transaction.set_rollback(True)
    assert not Job.objects.exists()


@pytest.mark.postgresql
def test_an_open_transaction_that_enqueues_blocks_no_worker(rival: Rival) -> None:
    seen = JobFactory()
    with rival.transaction():
        hidden = rival.do(enqueue, SPEC).job_id
        assert [job.id for job in claim("worker-1", (), 10, 30)] == [seen.pk]
    assert [job.id for job in claim("worker-1", (), 10, 30)] == [hidden]


@pytest.mark.django_db(transaction=True)
def test_one_of_several_at_the_same_moment_makes_the_job_of_a_key() -> None:
    specs = [JobSpec("a.b", unique_key=f"key:{number}") for number in range(10)]
    results = together(*[lambda: [enqueue(spec) for spec in specs]] * 3)
    for made in zip(*results, strict=True):
        assert len({one.job_id for one in made}) == 1
        assert [one.created for one in made].count(True) == 1
    assert Job.objects.count() == 10
