"""Control: what pause, cancel, resume and run now do in each state, according to the table of moves."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from jobqueue import InvalidOption, JobDoesNotExist, Verdict, clock
from jobqueue.core import states
from jobqueue.lifecycle import control
from jobqueue.models import Job
from tests.claiming import claim
from tests.factories import JobFactory
from tests.rivals import Rival, together

PLACES: dict[states.Place, dict[str, Any]] = {
    states.PENDING_TIME: {"scheduled": True},
    states.PENDING_CHILDREN: {"waiting_for_children": True},
    states.PENDING_TARGET: {"waiting_for_target": True},
    states.QUEUED: {"queued": True},
    states.RUNNING: {"running": True},
    states.PAUSED: {"paused": True},
    states.ERROR: {"error": True},
    states.SUCCESS: {"success": True},
    states.CANCELED: {"canceled": True},
}
STOPS = {control.pause: states.PAUSED, control.cancel: states.CANCELED}
VERBS = [control.pause, control.cancel, control.resume, control.run_now]


def row(job: Job) -> dict[str, Any]:
    return Job.objects.filter(pk=job.pk).values().get()


def test_every_place_of_the_table_is_tried() -> None:
    assert {*PLACES, states.NEW} == {*states.MOVES}


@pytest.mark.django_db
@pytest.mark.parametrize("verb", STOPS)
@pytest.mark.parametrize("origin", PLACES)
def test_pause_and_cancel_do_what_the_table_of_moves_allows(origin: states.Place, verb: Callable[[int], control.Answer]) -> None:
    job = JobFactory(**PLACES[origin])
    before = row(job)
    answer = verb(job.pk)
    job.refresh_from_db()
    destination = STOPS[verb]
    if origin == states.RUNNING:
        assert (answer.verdict, job.place) == (Verdict.REQUESTED, states.RUNNING)
        assert (job.cancel_requested, job.cancel_outcome) == (True, destination[0])
        assert job.lease_owner == "worker-1", "only the owner ends the run"
    elif states.allows(origin, destination):
        assert (answer.verdict, job.place) == (Verdict.DONE, destination)
        assert (job.finished_at is not None) == (destination == states.CANCELED)
        assert "by user" in job.message
    else:
        assert (answer.verdict, bool(answer)) == (Verdict.REFUSED, False)
        assert job.status in answer.reason
        assert row(job) == before
    assert (answer.job_id, answer.status) == (job.pk, job.status)


@pytest.mark.django_db
@pytest.mark.parametrize("origin", PLACES)
def test_resume_queues_only_paused_and_failed_jobs(origin: states.Place) -> None:
    job = JobFactory(**PLACES[origin])
    before = row(job)
    answer = control.resume(job.pk)
    job.refresh_from_db()
    if origin in (states.PAUSED, states.ERROR):
        assert (answer.verdict, job.place) == (Verdict.DONE, states.QUEUED)
        assert (job.failures, job.crashes, job.message, job.finished_at) == (0, 0, "", None)
        assert states.allows(origin, job.place)
    else:
        assert answer.verdict is Verdict.REFUSED
        assert answer.reason
        assert row(job) == before


@pytest.mark.django_db
@pytest.mark.parametrize("origin", PLACES)
def test_run_now_concerns_only_jobs_that_wait_for_a_time(origin: states.Place) -> None:
    job = JobFactory(**PLACES[origin])
    before = row(job)
    answer = control.run_now(job.pk)
    job.refresh_from_db()
    if origin == states.PENDING_TIME:
        assert (answer.verdict, job.place) == (Verdict.DONE, states.QUEUED)
        assert job.run_at <= clock.now()
        assert [claimed.id for claimed in claim("worker-1", (), 1, 30)] == [job.pk]
    else:
        assert answer.verdict is Verdict.REFUSED
        assert row(job) == before


@pytest.mark.django_db
@pytest.mark.parametrize("verb", VERBS)
def test_a_job_that_is_not_there_is_named(verb: Callable[[int], Any]) -> None:
    with pytest.raises(JobDoesNotExist, match="There is no job 123456789"):
        verb(123456789)


@pytest.mark.django_db
@pytest.mark.parametrize("outcome", ["ERROR", "SUCCESS", "", "paused"])
def test_an_outcome_that_no_request_can_have_is_refused(outcome: str) -> None:
    job = JobFactory()
    with pytest.raises(InvalidOption, match="must be PAUSED or CANCELED"):
        control.request_job_cancel(job.pk, outcome=outcome)


@pytest.mark.django_db
def test_a_request_to_stop_pauses_where_nothing_else_is_said() -> None:
    job = JobFactory()
    assert control.request_job_cancel(job.pk).status == "PAUSED"
    job.refresh_from_db()
    assert job.message == "Job was interrupted by user"


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("requests", "standing"),
    [
        ([control.pause], "PAUSED"),
        ([control.cancel], "CANCELED"),
        ([control.pause, control.cancel], "CANCELED"),
        ([control.cancel, control.pause], "CANCELED"),
        ([control.pause, control.pause], "PAUSED"),
        ([control.cancel, control.resume, control.pause], "PAUSED"),
        ([control.pause, control.cancel, control.resume], ""),
    ],
)
def test_of_several_requests_to_a_running_job_cancel_beats_pause_and_resume_withdraws(
    requests: list[Callable[[int], Any]], standing: str
) -> None:
    job = JobFactory(running=True)
    answers = [request(job.pk) for request in requests]
    job.refresh_from_db()
    assert all(answers)
    assert (job.status, job.cancel_requested, job.cancel_outcome) == ("RUNNING", bool(standing), standing)


@pytest.mark.django_db
def test_withdrawing_keeps_the_budgets_of_the_run() -> None:
    job = JobFactory(running=True, failures=2, crashes=1, attempt=4)
    control.cancel(job.pk)
    control.resume(job.pk)
    job.refresh_from_db()
    assert (job.failures, job.crashes, job.attempt) == (2, 1, 4)


@pytest.mark.django_db
def test_resume_of_a_running_job_that_was_not_asked_to_stop_is_refused() -> None:
    assert "was not asked to stop" in control.resume(JobFactory(running=True).pk).reason


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("attempt", "ahead", "place"),
    [(0, 3600, states.PENDING_TIME), (0, -1, states.QUEUED), (1, 3600, states.QUEUED), (0, None, states.QUEUED)],
    ids=["the caller's time is ahead", "the time has come", "the time of a retry", "no time"],
)
def test_resume_waits_again_only_for_the_callers_own_time(attempt: int, ahead: int | None, place: states.Place) -> None:
    run_at = None if ahead is None else clock.now() + timedelta(seconds=ahead)
    job = JobFactory(paused=True, run_at=run_at, attempt=attempt)
    control.resume(job.pk)
    job.refresh_from_db()
    assert job.place == place


@pytest.mark.django_db
def test_a_resumed_job_starts_clean_and_keeps_what_it_has_stored() -> None:
    job = JobFactory(
        error=True, failures=3, crashes=2, attempt=5, lease_token=7, metadata={"cursor": 7}, options={"unknown_since": "x", "timeout": 5}
    )
    control.resume(job.pk)
    [claimed] = claim("worker-1", (), 1, 30)
    job.refresh_from_db()
    assert (claimed.lease_token, claimed.failures, claimed.attempt) == (8, 0, 6)
    assert (job.failures, job.crashes) == (0, 0)
    assert (job.metadata, job.options, job.cancel_requested) == ({"cursor": 7}, {"timeout": 5}, False)


@pytest.mark.django_db
def test_resume_twice_resumes_once() -> None:
    job = JobFactory(paused=True)
    assert [bool(control.resume(job.pk)) for _ in range(2)] == [True, False]


@pytest.mark.long
@pytest.mark.django_db
def test_pause_and_resume_in_quick_alternation_leave_a_job_that_can_run() -> None:
    job = JobFactory()
    for _ in range(20):
        assert control.pause(job.pk)
        assert claim("worker-1", (), 1, 30) == []
        assert control.resume(job.pk)
    assert len(claim("worker-1", (), 1, 30)) == 1


@pytest.mark.django_db
@pytest.mark.parametrize("trait", ["paused", "error"])
def test_the_target_stays_held_until_the_job_is_canceled(trait: str) -> None:
    job = JobFactory(**{trait: True, "target": "customer:7", "holds_target": True})
    control.resume(job.pk)
    control.pause(job.pk)
    job.refresh_from_db()
    assert job.holds_target
    control.cancel(job.pk)
    job.refresh_from_db()
    assert not job.holds_target


@pytest.mark.django_db
@pytest.mark.parametrize("rival_", ["queued", "scheduled", "running", "paused"])
def test_resume_is_refused_while_another_live_job_has_the_unique_key_and_names_it(rival_: str) -> None:
    job = JobFactory(error=True, unique_key="report:7")
    other = JobFactory(**{rival_: True, "unique_key": "report:7"})
    before = row(job)
    answer = control.resume(job.pk)
    assert (answer.verdict, answer.status) == (Verdict.REFUSED, "ERROR")
    assert answer.reason == f"unique key 'report:7' is taken by job {other.pk}"
    assert row(job) == before


@pytest.mark.django_db
@pytest.mark.parametrize("other", ["error", "success", "canceled"])
def test_resume_is_granted_while_only_ended_jobs_had_the_unique_key(other: str) -> None:
    JobFactory(**{other: True, "unique_key": "report:7"})
    assert control.resume(JobFactory(error=True, unique_key="report:7").pk)


@pytest.mark.django_db
@pytest.mark.parametrize(("verb", "status"), [("pause", "PAUSED"), ("cancel", "CANCELED")])
def test_the_job_object_has_the_verbs_itself(verb: str, status: str) -> None:
    job = JobFactory()
    answer = getattr(job, verb)()
    assert (answer.verdict, answer.status) == (Verdict.DONE, status)
    job.refresh_from_db()
    assert job.status == status


@pytest.mark.django_db
def test_the_job_object_resumes_itself() -> None:
    job = JobFactory(error=True)
    assert job.resume().status == "QUEUED"


@pytest.mark.postgresql
@pytest.mark.parametrize("verb", [control.pause, control.cancel])
def test_a_job_that_is_claimed_while_the_request_waits_gets_the_flag(rival: Rival, verb: Callable[[int], Any]) -> None:
    job = JobFactory()
    party = Rival()
    with rival.transaction():
        assert len(rival.do(claim, "worker-1", (), 1, 30)) == 1
        waiting = party.start(verb, job.pk)
        party_waits()
    answer = waiting.result(20)
    party.close()
    job.refresh_from_db()
    assert (answer.verdict, job.status, job.cancel_requested) == (Verdict.REQUESTED, "RUNNING", True)


def party_waits() -> None:
    """Return once another session of this database waits for a lock."""
    sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    for _ in range(100_000):
        with connection.cursor() as cursor:
            cursor.execute(sql)
            if cursor.fetchone()[0]:
                return
    raise AssertionError("No session waits for a lock.")


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
def test_a_request_that_races_with_the_claim_is_either_done_or_requested() -> None:
    jobs = JobFactory.create_batch(30)
    answers, claimed = together(lambda: [control.cancel(job.pk) for job in jobs], lambda: [claim("worker-1", (), 2, 30) for _ in range(15)])
    running = {one.id for batch in claimed for one in batch}
    for answer in answers:
        job = Job.objects.get(pk=answer.job_id)
        if answer.verdict is Verdict.DONE:
            assert (job.status, job.pk in running) == ("CANCELED", False)
        else:
            assert (answer.verdict, job.status, job.cancel_outcome) == (Verdict.REQUESTED, "RUNNING", "CANCELED")


@pytest.mark.django_db(transaction=True)
def test_two_people_who_press_at_once_get_one_winner_each() -> None:
    jobs = JobFactory.create_batch(15, paused=True)
    first, second = together(*[lambda: [control.resume(job.pk) for job in jobs]] * 2)
    assert [bool(one) + bool(other) for one, other in zip(first, second, strict=True)] == [1] * 15
