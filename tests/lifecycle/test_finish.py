"""Finish: the flag on the row decides the outcome of a run, and only the owner of the lease can write it."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError, connection

from jobqueue import clock
from jobqueue.core import states
from jobqueue.db import Lease
from jobqueue.lifecycle import control
from jobqueue.lifecycle.expire import expire_stale_running_jobs
from jobqueue.lifecycle.finish import finish, written_before
from jobqueue.lifecycle.outcome import FINISHED_FIRST, INTERRUPTED_BY_SHUTDOWN, INTERRUPTED_BY_USER, Failure, Kind, Outcome
from jobqueue.models import Job
from tests import tasks
from tests.claiming import claim
from tests.factories import JobFactory
from tests.rivals import Rival, together

FAILURE = Failure("builtins.ValueError", "ValueError: no", "Traceback …")


def row(job: Job) -> dict[str, Any]:
    return Job.objects.filter(pk=job.pk).values().get()


def outcome(job: Job, kind: Kind, token: int | None = None, **fields: Any) -> Outcome:
    """Return the end of a run that began a second ago."""
    now = time.monotonic()
    failure = FAILURE if kind in (Kind.ERROR, Kind.RETRY, Kind.UNKNOWN_TASK) else None
    values = {"began": now - 1.0, "ended": now, "failure": failure, **fields}
    return Outcome(Lease(job.pk, job.lease_token if token is None else token), kind, **values)


def end(job: Job, kind: Kind, **fields: Any) -> str:
    [settled] = finish([outcome(job, kind, **fields)])
    job.refresh_from_db()
    return settled.status


UNFLAGGED = {
    Kind.SUCCESS: states.SUCCESS,
    Kind.ERROR: states.ERROR,
    Kind.RETRY: states.PENDING_TIME,
    Kind.INTERRUPTED: states.QUEUED,
    Kind.STOPPED: states.PAUSED,
    Kind.HANDED_BACK: states.QUEUED,
    Kind.UNKNOWN_TASK: states.PENDING_TIME,
    Kind.SLEEP: states.PENDING_TIME,
    Kind.WAIT: states.PENDING_CHILDREN,
    Kind.EXPIRED: states.CANCELED,
}
STANDING = (Kind.SUCCESS, Kind.ERROR)  # a flag does not change these
FLAGS = ("", "PAUSED", "CANCELED")


@pytest.mark.django_db
@pytest.mark.parametrize("recovery", states.Recovery.values)
@pytest.mark.parametrize("flag", FLAGS)
@pytest.mark.parametrize("kind", Kind)
def test_the_place_after_a_run_follows_its_kind_and_the_flag(kind: Kind, flag: str, recovery: str) -> None:
    job = JobFactory(running=True, recovery=recovery, cancel_requested=bool(flag), cancel_outcome=flag, max_attempts=3)
    expected = UNFLAGGED[kind] if not flag or kind in STANDING else states.place(flag)
    assert end(job, kind) == expected[0]
    assert job.place == expected
    assert (job.lease_owner, job.lease_expires_at, job.heartbeat_at) == ("", None, None)
    assert (job.cancel_requested, job.cancel_outcome) == (False, "")
    assert job.lease_token == 1, "only a claim raises the token"
    assert (job.finished_at is not None) == (job.status in states.ENDED)


@pytest.mark.django_db
@pytest.mark.parametrize("flag", FLAGS)
@pytest.mark.parametrize("kind", Kind)
def test_a_run_counts_unless_it_is_given_back(kind: Kind, flag: str) -> None:
    job = JobFactory(running=True, attempt=2, worker_ids=["worker-0"], cancel_requested=bool(flag), cancel_outcome=flag)
    end(job, kind)
    given_back = kind in (Kind.INTERRUPTED, Kind.HANDED_BACK, Kind.UNKNOWN_TASK, Kind.SLEEP, Kind.WAIT, Kind.EXPIRED) and not flag
    assert job.attempt == (1 if given_back else 2)
    assert job.worker_ids == (["worker-0"] if given_back else ["worker-0", "worker-1"])
    assert len(job.history) == (0 if given_back or kind is Kind.SUCCESS else 1)
    assert job.failures == (1 if kind is Kind.ERROR or (kind is Kind.RETRY and not flag) else 0)
    assert job.crashes == 0


@pytest.mark.django_db
@pytest.mark.parametrize("flag", FLAGS)
def test_the_message_says_why_a_run_that_was_interrupted_stopped(flag: str) -> None:
    job = JobFactory(running=True, cancel_requested=bool(flag), cancel_outcome=flag)
    end(job, Kind.STOPPED)
    assert job.message == (INTERRUPTED_BY_USER if flag else INTERRUPTED_BY_SHUTDOWN)


@pytest.mark.django_db
@pytest.mark.parametrize("flag", FLAGS)
def test_a_success_remains_and_says_that_the_interrupt_came_too_late(flag: str) -> None:
    job = JobFactory(running=True, cancel_requested=bool(flag), cancel_outcome=flag)
    assert end(job, Kind.SUCCESS, result='{"a": [1]}', message="done", metadata='{"seen": 3}') == "SUCCESS"
    assert job.message == (FINISHED_FIRST if flag else "done")
    assert (job.result, job.metadata, job.progress) == ({"a": [1]}, {"seen": 3}, 100)
    assert timedelta(seconds=0.9) < job.finished_at - job.started_at < timedelta(seconds=2)
    assert job.first_started_at == job.started_at


@pytest.mark.django_db
def test_an_error_keeps_its_text_in_the_message_and_in_the_history() -> None:
    job = JobFactory(running=True, attempt=1)
    end(job, Kind.ERROR)
    assert job.message == "ValueError: no"
    entry = job.last_error
    assert (entry["attempt"], entry["worker"], entry["outcome"]) == (1, "worker-1", "ERROR")
    assert (entry["exception"], entry["message"], entry["traceback"]) == ("builtins.ValueError", "ValueError: no", "Traceback …")
    assert entry["started_at"] < entry["finished_at"]


@pytest.mark.django_db
@pytest.mark.parametrize("flag", FLAGS)
def test_a_postponed_job_waits_for_its_delay_and_keeps_its_attempt_unless_it_is_stopped(flag: str) -> None:
    job = JobFactory(running=True, attempt=3, crashes=2, cancel_requested=bool(flag), cancel_outcome=flag)
    end(job, Kind.HANDED_BACK, delay_seconds=60.0, message="later")
    if flag:
        assert job.place == states.place(flag)
        return
    assert (job.place, job.attempt, job.crashes, job.message, job.started_at) == (states.PENDING_TIME, 2, 2, "later", None)
    assert timedelta(seconds=55) < job.run_at - clock.now() <= timedelta(seconds=60.5)


@pytest.mark.django_db
def test_a_retry_waits_from_the_statement_that_writes_it_on() -> None:
    job = JobFactory(running=True, max_attempts=3)
    end(job, Kind.RETRY, delay_seconds=60.0)
    assert job.place == states.PENDING_TIME
    assert timedelta(seconds=55) < job.run_at - clock.now() <= timedelta(seconds=60.5)
    assert job.last_error["outcome"] == "RETRY"
    assert not Job.objects.promote_due(10)


@pytest.mark.django_db
def test_a_job_handed_back_can_be_taken_at_once_and_shows_no_beginning() -> None:
    job = JobFactory(running=True, started_at=clock.now())
    end(job, Kind.HANDED_BACK)
    assert (job.started_at, job.place) == (None, states.QUEUED)
    assert [claimed.lease_token for claimed in claim("worker-2", (), 1, 30)] == [2]


@pytest.mark.django_db
def test_a_request_that_was_withdrawn_in_time_does_not_stop_the_next_run() -> None:
    job = JobFactory(running=True)
    control.pause(job.pk)
    control.resume(job.pk)
    assert end(job, Kind.INTERRUPTED) == "QUEUED"
    assert (job.attempt, job.failures) == (0, 0)


@pytest.mark.django_db
def test_an_unknown_task_is_put_off_and_ends_in_error_after_its_grace(settings: Any) -> None:
    settings.JOBQUEUE = {"UNKNOWN_TASK_GRACE_SECONDS": 300}
    job = JobFactory(running=True, options={"timeout": 5})
    assert end(job, Kind.UNKNOWN_TASK) == "PENDING"
    assert (job.attempt, job.failures, job.history) == (0, 0, [])
    assert timedelta(seconds=2) < job.run_at - clock.now() < timedelta(seconds=6)
    since = job.options["unknown_since"]
    again = {
        "status": "RUNNING",
        "waiting_for": "",
        "lease_owner": "worker-1",
        "lease_expires_at": clock.now(),
        "heartbeat_at": clock.now(),
    }
    Job.objects.filter(pk=job.pk).update(**again, attempt=1)
    assert end(job, Kind.UNKNOWN_TASK) == "PENDING"
    assert job.options == {"timeout": 5, "unknown_since": since}, "the grace counts from the first time"
    old = (clock.now() - timedelta(seconds=301)).isoformat()
    Job.objects.filter(pk=job.pk).update(**again, attempt=1, options={"timeout": 5, "unknown_since": old})
    assert end(job, Kind.UNKNOWN_TASK) == "ERROR"
    assert (job.failures, job.message, job.options) == (1, "ValueError: no", {"timeout": 5, "unknown_since": old})


@pytest.mark.django_db
@pytest.mark.parametrize("kind", [kind for kind in Kind if kind not in (Kind.UNKNOWN_TASK, Kind.SUCCESS)])
def test_any_other_end_forgets_that_the_task_was_once_unknown(kind: Kind) -> None:
    job = JobFactory(running=True, options={"unknown_since": clock.now().isoformat(), "a": 1})
    end(job, kind)
    assert {name: value for name, value in job.options.items() if name != "sleeps_until"} == {"a": 1}


@pytest.mark.django_db
def test_progress_and_metadata_of_a_run_that_did_not_succeed_are_kept() -> None:
    job = JobFactory(running=True, metadata={"old": 1})
    end(job, Kind.RETRY, metadata='{"cursor": 7}', progress=30)
    assert (job.metadata, job.progress) == ({"cursor": 7}, 30)


@pytest.mark.django_db
@pytest.mark.parametrize("kind", Kind)
def test_the_target_is_held_until_success_or_cancel(kind: Kind) -> None:
    job = JobFactory(running=True, target="customer:7")
    end(job, kind)
    assert job.holds_target == (kind not in (Kind.SUCCESS, Kind.EXPIRED))


@pytest.mark.django_db
def test_a_cancel_gives_the_target_back() -> None:
    job = JobFactory(running=True, target="customer:7", cancel_requested=True, cancel_outcome="CANCELED")
    end(job, Kind.INTERRUPTED)
    assert (job.status, job.holds_target) == ("CANCELED", False)


@pytest.mark.django_db
@pytest.mark.parametrize("token", [1, 3])
@pytest.mark.parametrize("kind", Kind)
def test_a_late_finish_changes_nothing(kind: Kind, token: int) -> None:
    job = JobFactory(running=True, lease_token=2, lease_owner="worker-2", attempt=2)
    before = row(job)
    assert end(job, kind, token=token) == ""
    assert row(job) == before


@pytest.mark.django_db
@pytest.mark.parametrize("trait", ["queued", "scheduled", "waiting_for_retry", "paused", "error", "success", "canceled"])
@pytest.mark.parametrize("kind", Kind)
def test_a_finish_of_a_job_that_does_not_run_changes_nothing(kind: Kind, trait: str) -> None:
    job = JobFactory(**{trait: True, "lease_token": 1})
    before = row(job)
    assert end(job, kind) == ""
    assert row(job) == before


@pytest.mark.django_db
@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("crashes", [0, 1, 2], ids=["now queued", "now pending", "now in error"])
def test_a_finish_after_a_sweep_changes_nothing(kind: Kind, crashes: int) -> None:
    job = JobFactory(expired=True, crashes=crashes)
    assert len(expire_stale_running_jobs()) == 1
    before = row(job)
    assert end(job, kind) == ""
    assert row(job) == before


@pytest.mark.django_db
@pytest.mark.parametrize("kind", Kind)
def test_the_same_end_written_twice_counts_once(kind: Kind) -> None:
    job = JobFactory(running=True)
    assert end(job, kind) != ""
    before = row(job)
    assert end(job, kind) == ""
    assert row(job) == before


@pytest.mark.django_db
def test_each_of_a_batch_is_settled_by_its_own_lease() -> None:
    won, lost, failed = JobFactory(running=True), JobFactory(running=True, lease_token=2), JobFactory(running=True)
    gone = Job(pk=10**9, lease_token=1)
    settled = finish(
        [outcome(won, Kind.SUCCESS), outcome(lost, Kind.SUCCESS, token=1), outcome(failed, Kind.ERROR), outcome(gone, Kind.RETRY)]
    )
    assert {one.outcome.lease.job_id: (one.status, one.written) for one in settled} == {
        won.pk: ("SUCCESS", True),
        lost.pk: ("", False),
        failed.pk: ("ERROR", True),
        gone.pk: ("", False),
    }


@pytest.mark.django_db
def test_no_outcomes_need_no_statement(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        assert finish([]) == []


# What the database refuses. Not in one transaction with the test: a refused statement ends it.

BAD_VALUES: dict[str, dict[str, Any]] = {
    "a result that is no JSON": {"kind": Kind.SUCCESS, "result": '"\\ud800'},
    "metadata that is no JSON": {"kind": Kind.SUCCESS, "metadata": "{"},
    "a message with NUL": {"kind": Kind.RETRY, "message": "a\0b"},
    "progress outside the bounds": {"kind": Kind.RETRY, "progress": 101},
    "metadata of a retry that is no JSON": {"kind": Kind.RETRY, "metadata": "{"},
    "a lone surrogate": {"kind": Kind.RETRY, "message": "\ud800"},
}
ONLY_POSTGRESQL = ("a message with NUL",)
KEPT = {Kind.SUCCESS: "SUCCESS", Kind.RETRY: "PENDING"}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("what", BAD_VALUES)
def test_a_value_that_the_database_refuses_is_replaced_and_the_decision_stays(what: str) -> None:
    if what in ONLY_POSTGRESQL and connection.vendor != "postgresql":
        pytest.skip("SQLite stores it")
    fields = {**BAD_VALUES[what]}
    kind: Kind = fields.pop("kind")
    before, bad, behind = JobFactory.create_batch(3, running=True)
    failed = JobFactory(running=True)
    settled = finish(
        [
            outcome(before, Kind.SUCCESS),
            outcome(bad, kind, **fields),
            outcome(behind, Kind.SUCCESS),
            outcome(failed, Kind.RETRY, delay_seconds=9.0),
        ]
    )
    assert {one.outcome.lease.job_id: one.status for one in settled} == {
        before.pk: "SUCCESS",
        bad.pk: "ERROR" if "result" in fields else KEPT[kind],
        behind.pk: "SUCCESS",
        failed.pk: "PENDING",
    }
    bad.refresh_from_db()
    if "result" in fields:
        assert (bad.status, bad.message) == ("ERROR", "outcome could not be stored")
        assert bad.last_error["message"].startswith("outcome could not be stored: ")
    elif kind is Kind.RETRY:
        assert bad.message in ("ValueError: no", "a\\ufffdb", "\\ufffd")
        assert bad.last_error["message"] == "ValueError: no"


@pytest.mark.django_db(transaction=True)
def test_a_refused_outcome_of_a_lost_lease_changes_nothing() -> None:
    job = JobFactory(running=True, lease_token=2)
    before = row(job)
    [settled] = finish([outcome(job, Kind.RETRY, token=1, progress=101)])
    assert (settled.status, row(job)) == ("", before)


@pytest.mark.session
@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_a_failed_connection_is_no_refusal() -> None:
    job = JobFactory(running=True)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        pid = cursor.fetchone()[0]
    together(lambda: Job.objects.database.rows("SELECT pg_terminate_backend(%s, 5000)", [pid]))
    with pytest.raises(DatabaseError):
        finish([outcome(job, Kind.ERROR)])
    connection.close()
    job.refresh_from_db()
    assert job.status == "RUNNING"
    assert end(job, Kind.ERROR) == "ERROR"


# An acknowledgement that was lost


@pytest.mark.django_db
@pytest.mark.parametrize(("kind", "status"), [(Kind.SUCCESS, "SUCCESS"), (Kind.ERROR, "ERROR")])
def test_an_end_that_the_database_has_already_counts_as_written(kind: Kind, status: str) -> None:
    job = JobFactory(running=True)
    mine = outcome(job, kind)
    assert written_before([mine]) == {}
    finish([mine])
    assert written_before([mine]) == {mine.lease: status}


@pytest.mark.django_db
def test_an_end_of_another_kind_or_another_run_does_not_count_as_written() -> None:
    other_kind, other_run = JobFactory(success=True), JobFactory(success=True, lease_token=2)
    ends = [outcome(other_kind, Kind.ERROR), outcome(other_run, Kind.SUCCESS, token=1)]
    assert written_before(ends) == {}


@pytest.mark.django_db
@pytest.mark.parametrize("kind", [Kind.RETRY, Kind.INTERRUPTED, Kind.STOPPED, Kind.HANDED_BACK, Kind.UNKNOWN_TASK])
def test_an_end_after_which_the_job_continues_is_reported_only_by_its_own_move(kind: Kind) -> None:
    job = JobFactory(running=True)
    mine = outcome(job, kind)
    finish([mine])
    assert written_before([mine]) == {}


@pytest.mark.django_db
@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("kind", Kind)
def test_of_two_runs_of_one_job_in_one_batch_only_the_newer_counts(kind: Kind, order: int) -> None:
    job = JobFactory(running=True, lease_token=2, attempt=2)
    others = JobFactory.create_batch(2, running=True)
    stale, fresh = (outcome(job, kind, token=token, message=f"run {token}", result=f'"run {token}"') for token in (1, 2))
    ends = [stale, *[outcome(other, Kind.SUCCESS, message="other", result='"other"') for other in others], fresh][::order]
    assert {settled.outcome.lease.token: settled.written for settled in finish(ends) if settled.outcome.lease.job_id == job.pk} == {
        1: False,
        2: True,
    }
    job.refresh_from_db()
    if kind is Kind.SUCCESS:
        assert (job.result, job.message) == ("run 2", "run 2")
    elif kind not in (Kind.STOPPED, Kind.EXPIRED):
        assert job.message == "run 2"


# Locked rows, and races


@pytest.mark.postgresql
@pytest.mark.parametrize("kind", Kind)
def test_a_locked_row_is_left_for_later_and_delays_no_other(rival: Rival, kind: Kind) -> None:
    locked, free, gone = JobFactory(running=True), JobFactory(running=True), JobFactory(running=True, lease_token=2)
    before = row(locked)
    ends = [outcome(locked, kind), outcome(free, kind), outcome(gone, kind, token=1)]
    with rival.locking(locked):
        found = {one.outcome.lease.job_id: (one.written, one.later) for one in finish(ends)}
        assert found == {locked.pk: (False, True), free.pk: (True, False), gone.pk: (False, False)}
        assert row(locked) == before
    assert [one.written for one in finish(ends[:1])] == [True]


@pytest.mark.postgresql
@pytest.mark.parametrize(("request_", "expected"), [(control.pause, "PAUSED"), (control.cancel, "CANCELED")])
def test_a_request_that_commits_while_the_finish_continues_is_obeyed(rival: Rival, request_: Callable[[int], Any], expected: str) -> None:
    job = JobFactory(running=True)
    with rival.transaction():
        rival.do(request_, job.pk)
        assert [one.later for one in finish([outcome(job, Kind.RETRY)])] == [True]
    assert [one.status for one in finish([outcome(job, Kind.RETRY)])] == [expected]


@pytest.mark.postgresql
@pytest.mark.parametrize("kind", Kind)
def test_a_recovery_that_commits_while_the_finish_continues_wins(rival: Rival, kind: Kind) -> None:
    job = JobFactory(expired=True)
    with rival.transaction():
        assert len(rival.do(expire_stale_running_jobs)) == 1
        assert [one.later for one in finish([outcome(job, kind)])] == [True]
    before = row(job)
    assert [(one.status, one.later) for one in finish([outcome(job, kind)])] == [("", False)]
    assert row(job) == before
    assert (before["status"], before["crashes"]) == ("QUEUED", 1)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("kind", [Kind.SUCCESS, Kind.RETRY])
def test_two_finishes_of_the_same_run_at_the_same_moment_count_once(kind: Kind) -> None:
    jobs = JobFactory.create_batch(10, running=True)
    ends = [outcome(job, kind) for job in jobs]
    results = [*together(lambda: finish(ends), lambda: finish(ends[::-1])), finish(ends)]
    for job in jobs:
        assert sum(one.written for result in results for one in result if one.outcome.lease.job_id == job.pk) == 1
        assert row(job)["worker_ids"] == ["worker-1"]


@pytest.mark.django_db(transaction=True)
def test_batches_in_opposite_order_and_a_sweep_meet_without_a_deadlock() -> None:
    jobs = JobFactory.create_batch(40, running=True)

    def write(kind: Kind, order: int) -> list[int]:
        ends, done = [outcome(job, kind) for job in jobs[::order]], list[int]()
        while ends:  # what is locked just now comes again
            settled = finish(ends)
            done += [one.outcome.lease.job_id for one in settled if one.written]
            ends = [one.outcome for one in settled if one.later]
        return done

    first, second, _ = together(lambda: write(Kind.RETRY, 1), lambda: write(Kind.ERROR, -1), expire_stale_running_jobs)
    assert sorted(first + second) == sorted(job.pk for job in jobs)


@pytest.mark.django_db
def test_a_run_of_a_table_that_was_emptied_does_not_end_the_new_job_of_its_id() -> None:
    [old] = run_and_empty_the_table()
    tasks.add.enqueue(1)
    [new] = claim("worker-1", [], 10, 30)
    assert new.id == old.id
    [settled] = finish([Outcome(Lease(old.id, old.lease_token), Kind.SUCCESS, time.monotonic(), time.monotonic(), result='"old"')])
    assert not settled.written
    job = Job.objects.get()
    assert (job.status, job.result) == ("RUNNING", None)


def run_and_empty_the_table() -> list[Any]:
    tasks.add.enqueue(1)
    found = claim("worker-1", [], 10, 30)
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
            cursor.execute("SELECT setval(pg_get_serial_sequence('jobqueue_job', 'id'), %s, FALSE)", [found[0].id])
        else:
            cursor.execute("UPDATE sqlite_sequence SET seq = %s WHERE name = 'jobqueue_job'", [found[0].id - 1])
        cursor.execute("DELETE FROM jobqueue_job")
    return found
