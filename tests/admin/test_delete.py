"""Delete jobs, one and many: after a confirmation, never a running one; the next job of their target starts."""

from typing import Any

import pytest
from django.contrib.admin.models import DELETION, LogEntry
from django.test import Client

from jobqueue.models import Job
from tests.admin.conftest import LIST, VERBS, Login, button, choose, detail, told
from tests.factories import JobFactory

pytestmark = pytest.mark.django_db


def left(*jobs: Any) -> list[int]:
    return [job.pk for job in jobs if Job.objects.filter(pk=job.pk).exists()]


def confirm(client: Client, address: str, data: Any = None) -> Any:
    """Ask for it, and confirm what the page names."""
    page = client.post(address, data or {})
    assert page.status_code == 200
    fields: dict[str, list[str]] = {}
    for name, value in page.context["fields"]:
        fields.setdefault(name, []).append(value)
    return client.post(address, fields)


@pytest.mark.long
@pytest.mark.parametrize("trait", ["queued", "scheduled", "waiting_for_target", "paused", "error", "success", "canceled"])
def test_a_job_that_does_not_run_is_deleted_once_the_page_has_named_it(operator: Client, trait: str) -> None:
    job = JobFactory(**{trait: True})
    page = operator.post(button(job, "delete"))
    assert (page.status_code, left(job)) == (200, [job.pk])
    text = page.content.decode()
    assert "Deleting a job removes its arguments" in text
    assert f"Delete job {job.pk}" in text
    response = confirm(operator, button(job, "delete"))
    assert (response.url, told(response), left(job)) == (LIST, [f"Job {job.pk} was deleted."], [])
    [entry] = LogEntry.objects.all()
    assert (entry.action_flag, entry.object_id, entry.get_change_message()) == (
        DELETION,
        str(job.pk),
        f"Deleted; the job was {job.status}.",
    )


def test_a_running_job_is_not_deleted(operator: Client) -> None:
    job = JobFactory(running=True)
    assert b"jq-verb-delete" not in operator.get(detail(job)).content
    response = operator.post(button(job, "delete"))
    assert (response.url, left(job)) == (detail(job), [job.pk])
    assert told(response) == [f"Job {job.pk} was not deleted: a running job cannot be deleted: cancel it first."]
    assert not LogEntry.objects.exists()


def test_a_job_that_began_to_run_while_the_page_asked_is_not_deleted(operator: Client) -> None:
    job = JobFactory()
    page = operator.post(button(job, "delete"))
    Job.objects.filter(pk=job.pk).delete()
    job = JobFactory(id=job.pk, running=True)
    response = operator.post(button(job, "delete"), dict(page.context["fields"]))
    assert (told(response)[0].endswith("cancel it first."), left(job)) == (True, [job.pk])


def test_many_are_deleted_one_by_one_and_running_jobs_are_reported(operator: Client) -> None:
    jobs, running = JobFactory.create_batch(3, error=True), JobFactory(running=True)
    page = choose(operator, "delete", *jobs, running)
    assert "Also selected: 1 job that runs, and cannot be deleted." in page.content.decode()
    data = {"action": "delete", "index": 0, "select_across": 0, "_selected_action": [job.pk for job in (*jobs, running)]}
    response = confirm(operator, LIST, data)
    assert told(response) == [
        "3 jobs were deleted.",
        f"Job {running.pk} was not deleted: a running job cannot be deleted: cancel it first.",
    ]
    assert left(*jobs, running) == [running.pk]


def test_the_line_of_a_deleted_holder_moves_on(operator: Client) -> None:
    holder, waiting = JobFactory(error=True, target="customer:7", holds_target=True), JobFactory(waiting_for_target=True)
    confirm(operator, button(holder, "delete"))
    assert (left(holder), Job.objects.get(pk=waiting.pk).status) == ([], "QUEUED")


def test_deleting_has_its_own_permission_on_the_page_and_in_bulk(login: Login) -> None:
    job = JobFactory(error=True)
    others = login("view_job", *(name for name in VERBS if name != "delete_job"))
    assert b"jq-verb-delete" not in others.get(detail(job)).content
    assert others.post(button(job, "delete"), {"confirmed": job.pk}).status_code == 403
    choose(others, "delete", job, confirmed=job.pk)
    assert left(job) == [job.pk]
    assert b"jq-verb-delete" in login("view_job", "delete_job").get(detail(job)).content


def test_djangos_own_way_to_delete_stays_closed(operator: Client) -> None:
    job = JobFactory(error=True)
    assert operator.post(f"{LIST}{job.pk}/delete/", {"post": "yes"}).status_code == 403
    choose(operator, "delete_selected", job, post="yes")
    assert left(job) == [job.pk]
