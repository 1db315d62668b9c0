"""Bulk actions: what they change, what they count, and what survives errors and other transactions."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.db import connection
from django.db.models import Q

from jobqueue.bulk import actions, work
from jobqueue.bulk.actions import create, preview
from jobqueue.clock import now
from jobqueue.duties.run_bulk_actions import RunBulkActions
from jobqueue.exceptions import InvalidOption, InvalidSearch, JobDoesNotExist
from jobqueue.insight import search
from jobqueue.lifecycle import control
from jobqueue.models import BulkAction, Job
from tests.duties.asking import seconds_to_work
from tests.factories import JobFactory, ahead
from tests.rivals import Rival
from tests.unchecked import unchecked, write

pytestmark = pytest.mark.django_db


def requested(verb: str = "resume", query: str = "status:ERROR", **given: Any) -> BulkAction:
    return create(verb, query, **{"actor": "operator anna", "source": "command", **given})


def ran(action: BulkAction) -> BulkAction:
    duty = RunBulkActions()
    while duty.run_once(now()).again:
        pass
    action.refresh_from_db()
    return action


def user_with(*codenames: str) -> Any:
    user = get_user_model().objects.create_user(f"user{get_user_model().objects.count()}")
    user.user_permissions.set(Permission.objects.filter(content_type__app_label="jobqueue", codename__in=codenames))
    return user


def statuses(jobs: list[Job]) -> list[str]:
    return [Job.objects.values_list("status", flat=True).get(pk=job.pk) for job in jobs]


def test_every_job_that_the_search_finds_is_changed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "BATCH", 3)
    monkeypatch.setattr(work, "SPAN", 5)
    failed = [JobFactory(error=True, queue="mail", target="" if number % 2 else f"t{number}") for number in range(10)]
    others = [JobFactory(error=True, queue="other"), JobFactory(paused=True, queue="mail"), JobFactory(queue="mail")]
    action = requested(query="queue:mail status:ERROR")
    later = JobFactory(error=True, queue="mail")
    assert seconds_to_work(RunBulkActions()) == 0
    assert ran(action).state == "DONE"
    assert (action.done, action.refused, action.cursor) == (10, 0, action.upto_id)
    assert statuses(failed) == ["QUEUED"] * 10
    assert statuses([*others, later]) == ["ERROR", "PAUSED", "QUEUED", "ERROR"]
    assert seconds_to_work(RunBulkActions()) is None


@pytest.mark.parametrize(
    ("verb", "before", "after"),
    [("cancel", "paused", "CANCELED"), ("pause", "queued", "PAUSED"), ("resume", "paused", "QUEUED"), ("run_now", "scheduled", "QUEUED")],
)
def test_each_verb_moves_the_jobs_on_which_it_is_possible(verb: str, before: str, after: str) -> None:
    job, ended = JobFactory(queue="mail", **{before: True}), JobFactory(queue="mail", success=True)
    action = ran(requested(verb, "queue:mail"))
    assert (action.done, statuses([job, ended])) == (1, [after, "SUCCESS"])


def test_jobs_are_deleted_and_running_ones_are_asked_to_stop() -> None:
    ended, running = JobFactory(success=True, queue="mail"), JobFactory(running=True, queue="mail")
    assert ran(requested("cancel", "queue:mail")).done == 1
    assert ran(requested("delete", "queue:mail")).done == 1
    assert list(Job.objects.values_list("pk", "cancel_outcome")) == [(running.pk, "CANCELED")]
    assert ended.pk != running.pk


@pytest.mark.usefixtures("small_table")
def test_the_preview_counts_and_changes_nothing() -> None:
    jobs = [JobFactory(error=True, queue=queue, task="shop.send") for queue in ("mail", "mail", "other")]
    JobFactory(success=True, task="shop.send"), JobFactory(error=True, task="shop.other")
    found = preview("resume", "task:shop.send")
    assert (found.number, found.more, found.scope, found.sample) == (3, False, "", [job.pk for job in reversed(jobs)])
    assert (found.by_status, found.by_queue, found.by_task) == ({"ERROR": 3}, {"mail": 2, "other": 1}, {"shop.send": 3})
    assert statuses(jobs) == ["ERROR"] * 3


def test_older_jobs_are_counted_by_their_arguments_only_if_no_newer_one_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "WINDOW", 2)
    old = JobFactory(error=True, args=[], kwargs={"a": 7})
    others = [JobFactory(error=True, args=[], kwargs={"a": 8}) for _ in range(3)]
    found = preview("resume", "a=7")
    assert (found.number, found.sample) == (1, [old.pk])
    assert "older ones" in found.scope
    found = preview("resume", "a=8")
    assert (found.number, found.scope) == (2, "The newest 2 jobs.")
    assert preview("resume", "task:tests.tasks.add").number == 1 + len(others)


def test_an_action_needs_a_verb_and_a_condition() -> None:
    with pytest.raises(InvalidOption, match="verb is 'retry'; it must be one of cancel, pause, resume, run_now, delete"):
        requested("retry")
    with pytest.raises(InvalidSearch, match="needs a search with at least one condition"):
        requested(query=" ")


def test_a_refusal_is_counted_with_its_reason_and_stops_nothing() -> None:
    taken = JobFactory(unique_key="k")
    refused = JobFactory(error=True, unique_key="k")
    good = JobFactory(error=True)
    action = ran(requested())
    assert (action.state, action.done, action.refused) == ("DONE", 1, 1)
    assert action.refusals == {f"unique key 'k' is taken by job {taken.pk}": 1}
    assert statuses([refused, good]) == ["ERROR", "QUEUED"]


def test_a_job_that_fails_or_vanishes_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [JobFactory(error=True) for _ in range(5)]

    def act(job_id: int) -> Any:
        if job_id == jobs[1].pk:
            raise ValueError("this row is bad")
        if job_id == jobs[2].pk:
            raise JobDoesNotExist
        return control.resume(job_id)

    monkeypatch.setitem(actions.VERBS, "resume", actions.BulkVerb(act, ["ERROR"], "resumed"))
    action = ran(requested())
    assert (action.state, action.done, action.refusals) == ("DONE", 3, {"this row is bad": 1})
    assert statuses(jobs) == ["QUEUED", "ERROR", "ERROR", "QUEUED", "QUEUED"]


def test_a_row_that_no_constraint_allows_stops_no_other() -> None:
    bad, good = JobFactory(error=True), JobFactory(error=True)
    with unchecked():
        for column in ("kwargs", "options"):
            write(Job, bad.pk, column, "'{'" if connection.vendor == "sqlite" else "'7'")
    action = ran(requested())
    assert (action.state, statuses([good])) == ("DONE", ["QUEUED"])


def test_a_batch_and_its_progress_are_one_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [JobFactory(error=True) for _ in range(3)]
    action = requested()

    class Killed(BaseException):
        """The end of the leader."""

    def killed(*args: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(work, "_save", killed)
        with pytest.raises(Killed):
            ran(action)
    assert statuses(jobs) == ["ERROR"] * 3
    assert ran(action).done == 3


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_a_job_that_another_transaction_has_locked_is_refused_and_stops_no_other(rival: Rival) -> None:
    jobs = [JobFactory(error=True) for _ in range(3)]
    action = requested()
    with rival.locking(jobs[1]):
        assert ran(action).refusals == {"another transaction has locked it": 1}
    assert (action.state, statuses(jobs)) == ("DONE", ["QUEUED", "ERROR", "QUEUED"])


def test_stop_takes_effect_between_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "RUN_SECONDS", 0.0)  # a batch is then one job
    jobs = [JobFactory(error=True) for _ in range(5)]
    action = requested()
    RunBulkActions().run_once(now())
    assert actions.stop(action, actor="operator anna")
    assert ran(action).state == "STOPPED"
    assert statuses(jobs) == ["QUEUED"] + ["ERROR"] * 4
    assert not actions.stop(action, actor="operator anna")


def test_the_rights_of_the_user_are_those_at_the_run(settings: Any) -> None:
    settings.JOBQUEUE = {"VISIBLE_JOBS": lambda user: Q(tenant="acme")}
    mine, other = JobFactory(error=True, tenant="acme"), JobFactory(error=True)
    user = user_with("view_job", "resume_job")
    assert preview("resume", "status:ERROR", user).number == 1
    action = requested(actor=user)
    assert ran(action).done == 1
    assert statuses([mine, other]) == ["QUEUED", "ERROR"]


@pytest.mark.parametrize("change", ["permission", "inactive", "gone"])
def test_an_action_whose_user_has_lost_the_right_fails_with_the_reason(change: str) -> None:
    job, user = JobFactory(error=True), user_with("view_job", "resume_job")
    action = requested(actor=user)
    if change == "permission":
        user.user_permissions.clear()
    elif change == "inactive":
        get_user_model().objects.filter(pk=user.pk).update(is_active=False)
    else:
        user.delete()
    assert ran(action).state == "FAILED"
    assert "The user who requested it" in action.message
    assert statuses([job]) == ["ERROR"]


def test_the_audit_has_a_record_of_the_action_and_of_each_job(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "jobqueue.audit")
    job = JobFactory(error=True)
    action = ran(requested())
    lines = [record.getMessage() for record in caplog.records if record.name == "jobqueue.audit"]
    assert len(lines) == 2
    assert lines[0].startswith(f"operator anna: bulk resume bulk action {action.pk}: requested")
    assert lines[1].startswith(f"operator anna: resume job {job.pk}: done")


def test_ended_actions_are_deleted_after_a_month() -> None:
    old, new = ran(requested()), ran(requested())
    BulkAction.objects.filter(pk=old.pk).update(finished_at=ahead(days=-31).evaluate(None, None, {}))
    requested()
    assert {*BulkAction.objects.values_list("pk", flat=True)} >= {new.pk}
    assert not BulkAction.objects.filter(pk=old.pk).exists()
