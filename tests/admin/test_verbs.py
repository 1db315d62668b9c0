"""Cancel, pause, resume and run now, from the list and from a job's page."""

import dataclasses
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db import OperationalError
from django.test import Client
from django.urls import resolve

from jobqueue.admin import JobAdmin, actions, verbs
from jobqueue.exceptions import JobDoesNotExist
from jobqueue.models import Job
from tests.admin.conftest import LIST, VERBS, Login, button, choose, detail, told
from tests.factories import JobFactory

pytestmark = pytest.mark.django_db


def states(*jobs: Any) -> list[str]:
    return [Job.objects.get(pk=job.pk).status for job in jobs]


def flags(*jobs: Any) -> list[str]:
    return [Job.objects.get(pk=job.pk).cancel_outcome for job in jobs]


def audit() -> list[tuple[str, str]]:
    return [(entry.object_id, entry.get_change_message()) for entry in LogEntry.objects.order_by("pk")]


# One job


@pytest.mark.parametrize(
    ("verb", "trait", "status", "text"),
    [
        ("cancel", "queued", "CANCELED", "Job {} was canceled."),
        ("cancel", "error", "CANCELED", "Job {} was canceled."),
        ("pause", "scheduled", "PAUSED", "Job {} was paused."),
        ("resume", "paused", "QUEUED", "Job {} was resumed."),
        ("resume", "error", "QUEUED", "Job {} was resumed."),
        ("run_now", "scheduled", "QUEUED", "Job {} was queued to run now."),
        ("resume", "pause_requested", "RUNNING", "The request to stop was withdrawn from running job {}."),
        ("cancel", "success", "SUCCESS", "Job {} was not canceled: a job in state SUCCESS cannot be canceled."),
        ("pause", "error", "ERROR", "Job {} was not paused: a job in state ERROR cannot be paused."),
        ("resume", "queued", "QUEUED", "Job {} was not resumed: a job in state QUEUED cannot be resumed."),
        ("run_now", "queued", "QUEUED", "Job {} was not queued to run now: a job in state QUEUED does not wait for a time."),
    ],
)
def test_a_button_runs_its_verb_and_reports_the_result(operator: Client, verb: str, trait: str, status: str, text: str) -> None:
    job = JobFactory(**{trait: True})
    response = operator.post(button(job, verb))
    assert (response.status_code, response.url) == (302, detail(job))
    assert states(job) == [status]
    assert told(response) == [text.format(job.pk)]
    assert len(audit()) == ("not" not in text)


def test_a_running_job_is_asked_to_stop_only_after_a_page_has_named_it(operator: Client) -> None:
    job = JobFactory(running=True, task="shop.tasks.build_report")
    page = operator.post(button(job, "cancel"))
    assert page.status_code == 200
    assert "build_report" in page.content.decode()
    assert "Canceling is final" in page.content.decode()
    assert flags(job) == [""]
    response = operator.post(button(job, "cancel"), dict(page.context["fields"]))
    assert flags(job) == ["CANCELED"]
    assert told(response) == [f"Running job {job.pk} was asked to stop, to be canceled."]
    assert audit() == [(str(job.pk), "While it ran: asked to stop, to be canceled.")]


@pytest.mark.parametrize("verb", ["cancel", "pause", "resume", "run_now", "delete"])
def test_a_button_without_its_permission_is_refused(login: Login, verb: str) -> None:
    job = JobFactory(scheduled=True)
    others = [name for name in VERBS if name != f"{verb}_job"]
    assert login("view_job", *others).post(button(job, verb)).status_code == 403
    assert login(*VERBS).post(button(job, verb)).status_code == 403
    assert Client().post(button(job, verb)).status_code == 302
    assert states(job) == ["PENDING"]
    assert audit() == []


def test_a_button_without_a_csrf_token_is_refused(login: Login) -> None:
    job = JobFactory()
    strict = login("view_job", *VERBS, enforce_csrf_checks=True)
    assert strict.post(button(job, "cancel")).status_code == 403
    assert choose(strict, "cancel", job).status_code == 403
    assert states(job) == ["QUEUED"]


@pytest.mark.urls("demo_project.urls")  # the page of a 404 is the demo's, and links to its other pages
def test_unknown_verbs_and_jobs_are_not_found(operator: Client) -> None:
    job = JobFactory()
    assert operator.post(f"{LIST}{job.pk}/act/destroy/").status_code == 404
    assert told(operator.post(f"{LIST}{job.pk + 1}/act/cancel/")) == [f"There is no job {job.pk + 1}; it may have been deleted."]
    assert operator.post(f"{LIST}{'9' * 30}/act/cancel/").status_code == 302


def test_a_job_that_a_project_hides_cannot_be_changed_by_its_number(operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    hidden, seen = JobFactory(tenant="other"), JobFactory(tenant="mine")
    everything = JobAdmin.get_queryset
    monkeypatch.setattr(JobAdmin, "get_queryset", lambda self, request: everything(self, request).filter(tenant="mine"))
    assert operator.get(detail(hidden)).url == LIST
    assert operator.post(button(hidden, "cancel")).url == LIST
    response = choose(operator, "cancel", hidden, seen)
    choose(operator, "cancel", seen, select_across=1)
    assert states(hidden, seen) == ["QUEUED", "CANCELED"]
    assert told(response)[-1] == f"Job {hidden.pk} was not canceled: it no longer exists, or you may not change it."


# Many jobs


def test_a_bulk_action_says_what_happened_to_how_many(operator: Client) -> None:
    queued, scheduled = JobFactory.create_batch(2), JobFactory(scheduled=True)
    running, ended, canceled = JobFactory(running=True), JobFactory.create_batch(2, success=True), JobFactory(canceled=True)
    jobs = [*queued, scheduled, running, *ended, canceled]
    page = choose(operator, "cancel", *jobs, confirmed=running.pk)
    assert "Also selected: 3 jobs that cannot be canceled now." in page.content.decode()
    response = choose(operator, "cancel", *jobs, confirmed=dict(page.context["fields"])["confirmed"])
    assert response.status_code == 302
    assert told(response) == [
        "3 jobs were canceled.",
        f"Running job {running.pk} was asked to stop, to be canceled.",
        "3 jobs were not canceled: a job in state SUCCESS cannot be canceled (2); a job in state CANCELED cannot be canceled (1).",
    ]
    assert states(*queued, scheduled) == ["CANCELED"] * 3
    assert flags(running) == ["CANCELED"]
    assert {job_id for job_id, _ in audit()} == {str(job.pk) for job in (*queued, scheduled, running)}


@pytest.mark.parametrize(
    ("verb", "trait", "status"), [("pause", "queued", "PAUSED"), ("resume", "error", "QUEUED"), ("run_now", "scheduled", "QUEUED")]
)
def test_every_verb_works_in_bulk(operator: Client, verb: str, trait: str, status: str) -> None:
    jobs = JobFactory.create_batch(2, **{trait: True})
    response = choose(operator, verb, *jobs, url=f"{LIST}?queue=default")
    assert response.url == f"{LIST}?queue=default"
    assert states(*jobs) == [status] * 2
    assert told(response) == [f"2 jobs were {verbs.VERBS[verb].done}."]


@pytest.mark.parametrize("trait", ["error", "queued", "paused", "scheduled"])
@pytest.mark.parametrize(("verb", "sentence"), [("cancel", "cannot be resumed"), ("delete", "this cannot be undone")])
def test_canceling_several_jobs_always_needs_a_confirmation(operator: Client, verb: str, sentence: str, trait: str) -> None:
    jobs = JobFactory.create_batch(3, **{trait: True})
    before = states(*jobs)
    page = choose(operator, verb, *jobs)
    assert (page.status_code, states(*jobs)) == (200, before)
    text = page.content.decode()
    assert f"{verb.capitalize()} 3 jobs?" in text
    assert sentence in text
    assert all(f"#{job.pk}" in text for job in jobs)
    assert page.context["counts"] == [(jobs[0].get_status_display(), 3)]
    assert choose(operator, verb, *jobs, confirmed=dict(page.context["fields"])["confirmed"]).status_code == 302
    assert Job.objects.exclude(status="CANCELED").count() == 0
    assert choose(operator, verb, *jobs[:1]).status_code in (200, 302)


def test_a_selection_with_running_jobs_is_confirmed_first(operator: Client) -> None:
    queued, running = JobFactory(), JobFactory(running=True)
    page = choose(operator, "pause", queued, running)
    assert page.status_code == 200
    assert states(queued) == ["QUEUED"]
    text = page.content.decode()
    assert f"#{running.pk}" in text
    assert f"#{queued.pk}" not in text
    assert "Also selected: 1 job that does not run." in text
    fields: dict[str, list[str]] = {}
    for name, value in page.context["fields"]:
        fields.setdefault(name, []).append(value)
    response = operator.post(LIST, fields)
    assert told(response) == [f"Job {queued.pk} was paused.", f"Running job {running.pk} was asked to stop, to be paused."]
    assert flags(running) == ["PAUSED"]


def test_a_job_that_began_to_run_meanwhile_is_named_before_it_is_interrupted(operator: Client) -> None:
    named, later = JobFactory(running=True), JobFactory(running=True)
    page = choose(operator, "cancel", named, later, confirmed=named.pk)
    assert page.status_code == 200
    assert flags(named, later) == ["", ""]
    assert choose(operator, "cancel", named, later, confirmed=f"{named.pk},{later.pk}").status_code == 302
    assert flags(named, later) == ["CANCELED", "CANCELED"]


@pytest.mark.parametrize("confirmed", ["", "x", ",,", "9" * 5000, "\0", "-1"])
def test_an_odd_confirmation_confirms_nothing(operator: Client, confirmed: str) -> None:
    job = JobFactory(running=True)
    assert choose(operator, "cancel", job, confirmed=confirmed).status_code == 200
    assert flags(job) == [""]


@pytest.mark.parametrize("verb", ["cancel", "pause", "resume", "run_now", "delete", "delete_selected", "act_on_selected", "nonsense", ""])
def test_a_forged_action_does_nothing(viewer: Client, verb: str) -> None:
    job = JobFactory(scheduled=True)
    choose(viewer, verb, job)
    choose(viewer, verb, job, select_across=1)
    assert states(job) == ["PENDING"]


def test_the_action_itself_checks_the_permission(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    job = JobFactory()
    monkeypatch.setattr(JobAdmin, "has_cancel_permission", lambda self, request: True)  # as if the action had been offered
    assert choose(viewer, "cancel", job).status_code == 403
    assert states(job) == ["QUEUED"]


@pytest.mark.parametrize("selected", ["abc", "9" * 30, "#1", "0" * 5000 + "1", "\0", "-1", "1 OR 1=1", "9" * 5000])
def test_a_selection_that_is_no_number_is_a_bad_request(operator: Client, selected: str) -> None:
    assert operator.post(LIST, {"action": "cancel", "index": 0, "_selected_action": selected}).status_code == 400


def test_the_whole_list_is_processed_up_to_a_bound_and_the_rest_is_reported(operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "MAX_AT_ONCE", 3)
    queued = JobFactory.create_batch(4)
    ended = JobFactory.create_batch(4, success=True)
    page = choose(operator, "cancel", ended[0], select_across=1)
    assert "More than 3 jobs were selected" in page.content.decode()
    response = choose(operator, "cancel", *queued[1:], confirmed=dict(page.context["fields"])["confirmed"])
    assert states(*queued) == ["QUEUED", "CANCELED", "CANCELED", "CANCELED"]
    assert told(response)[-1] == "3 jobs were canceled."
    choose(operator, "cancel", ended[0], select_across=1, url=f"{LIST}?status=QUEUED")
    assert states(*queued) == ["CANCELED"] * 4


def test_a_job_that_is_deleted_meanwhile_is_reported_and_the_others_continue(operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    gone, there = JobFactory(), JobFactory()
    cancel = verbs.CANCEL.act

    def act(job_id: int) -> Any:
        if job_id == gone.pk:
            raise JobDoesNotExist("gone")
        return cancel(job_id)

    response = choose_with(operator, monkeypatch, act, gone, there)
    assert told(response) == [
        f"Job {there.pk} was canceled.",
        f"Job {gone.pk} was not canceled: it no longer exists, or you may not change it.",
    ]


def test_when_the_database_fails_the_rest_is_not_tried(operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = JobFactory.create_batch(3)
    cancel, tried = verbs.CANCEL.act, []

    def act(job_id: int) -> Any:
        tried.append(job_id)
        if job_id == second.pk:
            raise OperationalError("server closed the connection")
        return cancel(job_id)

    response = choose_with(operator, monkeypatch, act, first, second, third)
    assert tried == [first.pk, second.pk]
    assert told(response) == [f"Job {first.pk} was canceled.", "2 jobs were not canceled: the database did not respond; try again (2)."]
    assert states(first, second, third) == ["CANCELED", "QUEUED", "QUEUED"]
    assert [job_id for job_id, _ in audit()] == [str(first.pk)]


def test_a_change_without_its_audit_record_is_undone(operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OperationalError("disk full")

    monkeypatch.setattr("jobqueue.access.audit._write", fail)
    job = JobFactory()
    operator.post(button(job, "cancel"))
    assert states(job) == ["QUEUED"]


def test_the_user_of_each_change_is_recorded(operator: Client) -> None:
    job = JobFactory(scheduled=True)
    for verb in ("pause", "resume", "run_now", "cancel"):
        operator.post(button(job, verb))
    assert [text for _, text in audit()] == [
        "Paused; the job was PENDING.",
        "Resumed; the job was PAUSED.",
        "Queued to run now; the job was PENDING.",
        "Canceled; the job was QUEUED.",
    ]
    assert "Canceled; the job was QUEUED." in operator.get(f"{LIST}{job.pk}/history/").content.decode()


def test_no_transaction_is_around_all_jobs_even_where_the_project_wants_one_for_each_request() -> None:
    for address in (LIST, f"{LIST}1/act/cancel/"):
        assert "default" in resolve(address).func._non_atomic_requests


def choose_with(client: Client, monkeypatch: pytest.MonkeyPatch, act: Any, *jobs: Any) -> Any:
    """Cancel in bulk, with something else in place of the real verb."""
    verb = dataclasses.replace(verbs.CANCEL, act=act)
    monkeypatch.setattr(JobAdmin, "actions", (actions.action_of(verb),))
    return choose(client, "cancel", *jobs, confirmed=",".join(str(job.pk) for job in jobs))
