"""The form on the page of a task that enqueues a job of it."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.db.models import Q
from django.test import Client
from django.urls import reverse

from jobqueue import task
from jobqueue.models import AuditRecord, Job
from tests.factories import JobFactory

pytestmark = pytest.mark.django_db
ADD = "tests.tasks.add"
FORM = {"args": "[1]", "kwargs": '{"b": 2}', "queue": "mail", "priority": "7", "run_after_0": "", "run_after_1": ""}


@task(schedulable=False)
def by_code_only() -> None:
    """Run for code alone."""


@task(unique_key="one")
def once(number: int) -> None:
    del number


@pytest.fixture
def client(db: None) -> Client:
    return client_with("view_job", "add_job")


def client_with(*permissions: str) -> Client:
    user = get_user_model().objects.create_user("operator", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(user)
    return client


def form(path: str = ADD) -> str:
    return reverse("admin:jobqueue_job_task_new", args=[path])


def errors(answer: Any) -> dict[str, list[str]]:
    assert answer.status_code == 400
    return {name: list(found) for name, found in answer.context["form"].errors.items()}


def test_the_page_of_a_task_leads_to_the_form_and_the_form_to_the_job(client: Client) -> None:
    assert form() in client.get(reverse("admin:jobqueue_job_task", args=[ADD])).content.decode()
    shown = client.get(form())
    assert "add(a" in shown.content.decode()
    assert shown.context["form"]["queue"].value() == "default"
    answer = client.post(form(), FORM, follow=True)
    job = Job.objects.get()
    assert (job.task, job.args, job.kwargs, job.queue, job.priority, job.status) == (ADD, [1], {"b": 2}, "mail", 7, "QUEUED")
    assert answer.redirect_chain == [(reverse("admin:jobqueue_job_change", args=[job.pk]), 302)]
    assert f"Job {job.pk} was enqueued." in answer.content.decode()
    assert AuditRecord.objects.filter(verb="add", object=f"job {job.pk}").exists()


def test_a_job_can_be_enqueued_for_later(client: Client) -> None:
    client.post(form(), {**FORM, "run_after_0": "2100-01-31", "run_after_1": "03:00:00"})
    job = Job.objects.get()
    assert (job.status, job.run_at.year) == ("PENDING", 2100)


def test_all_mistakes_are_named_beside_their_fields_and_what_was_written_is_kept(client: Client) -> None:
    wrong = {"args": "[1", "kwargs": "7", "queue": "", "priority": "high", "run_after_0": "tomorrow", "run_after_1": ""}
    answer = client.post(form(), wrong)
    assert set(errors(answer)) == {"args", "kwargs", "queue", "priority", "run_after"}
    assert "[1</textarea>" in answer.content.decode()
    assert Job.objects.count() == 0


@pytest.mark.parametrize(
    ("given", "field", "text"),
    [
        ({"kwargs": '{"c": 2}'}, "kwargs", "'c'"),
        ({"args": "[]", "kwargs": "{}"}, "kwargs", "'a'"),
        ({"priority": "101"}, "__all__", "priority is 101"),
        ({"queue": "q" * 300}, "queue", "characters"),
        ({"run_after_0": "9999-12-31", "run_after_1": "23:59:59"}, "__all__", "run_after"),
        ({"args": '["\\ud800"]'}, "__all__", ""),
        ({"args": "[" * 100_000}, "args", "JSON"),
    ],
)
def test_what_an_enqueue_rejects_is_named(client: Client, given: dict[str, str], field: str, text: str) -> None:
    found = errors(client.post(form(), {**FORM, **given}))
    assert text in found[field][0]
    assert Job.objects.count() == 0


def test_a_taken_unique_key_leads_to_the_job_that_has_it(client: Client) -> None:
    path = f"{__name__}.once"
    for _ in range(2):
        answer = client.post(form(path), {**FORM, "kwargs": "{}"}, follow=True)
    assert Job.objects.count() == 1
    assert "has not ended, so no job was enqueued" in answer.content.decode()


def test_only_users_with_the_permission_and_only_tasks_for_people_have_the_form(client: Client) -> None:
    JobFactory(task=f"{__name__}.by_code_only")
    for path, status in ((f"{__name__}.by_code_only", 403), ("tests.tasks.unknown", 404), ("a\0b", 404)):
        assert client.get(form(path)).status_code == client.post(form(path), FORM).status_code == status
    assert "/new/" not in client.get(reverse("admin:jobqueue_job_task", args=[f"{__name__}.by_code_only"])).content.decode()
    get_user_model().objects.get().user_permissions.set(Permission.objects.filter(codename="view_job"))
    assert client.get(form()).status_code == client.post(form(), FORM).status_code == 403
    assert "/new/" not in client.get(reverse("admin:jobqueue_job_task", args=[ADD])).content.decode()
    assert Job.objects.count() == 1


def test_a_user_who_sees_some_jobs_enqueues_none_that_the_user_would_not_see(client: Client, settings: Any) -> None:
    settings.JOBQUEUE = {**settings.JOBQUEUE, "VISIBLE_JOBS": lambda user: Q(queue="other")}
    assert "may not see" in errors(client.post(form(), FORM))["__all__"][0]
    assert Job.objects.count() == 0
    client.post(form(), {**FORM, "queue": "other"})
    assert Job.objects.count() == 1
