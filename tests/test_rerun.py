"""An ended job runs again as a copy: from code, over REST, on the command line and in the admin."""

from __future__ import annotations

import io
import json
import logging
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse

from jobqueue import task
from jobqueue.core.masking import MASK
from jobqueue.exceptions import CannotRunAgain, JobDoesNotExist
from jobqueue.insight.reruns import reruns_of
from jobqueue.models import Job, JobLog, JobRerun
from jobqueue.rerun import run_again
from jobqueue.testing import run_until_idle
from tests import tasks
from tests.factories import JobFactory

pytestmark = pytest.mark.django_db
SECRET = "abcd-1234"  # noqa: S105 - of no system
ADD = "tests.tasks.add"


@task(target=lambda customer: f"customer:{customer}", unique_key=lambda customer: f"sync-{customer}", timeout=9, max_attempts=3)
def sync(customer: int) -> None:
    del customer


@task
def log_in(url: str, password: str, note: str = "") -> None:
    del url, password, note


@pytest.fixture
def client(db: None) -> Client:
    user = get_user_model().objects.create_user("operator", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=("view_job", "requeue_job", "view_job_log")))
    client = Client()
    client.force_login(user)
    return client


def ended(made: Any, **columns: Any) -> Job:
    """Return the job of a result as it is after its end."""
    Job.objects.filter(pk=made.job_id).update(status="SUCCESS", holds_target=False, **columns)
    return Job.objects.get(pk=made.job_id)


@pytest.mark.parametrize("state", ["success", "canceled", "error"])
def test_a_copy_of_an_ended_job_is_enqueued_and_linked(state: str) -> None:
    job = JobFactory(task=ADD, args=[1], kwargs={"b": 2}, queue="mail", priority=7, metadata={"order": 7}, tenant="acme", **{state: True})
    copy = Job.objects.get(pk=run_again(job.pk))
    for name in ("task", "args", "kwargs", "queue", "priority", "metadata", "tenant", "target", "recovery", "max_attempts"):
        assert getattr(copy, name) == getattr(job, name), name
    assert (copy.status, copy.attempt) == ("QUEUED", 0)
    assert Job.objects.get(pk=job.pk).status == job.status
    user = get_user_model()(is_superuser=True)
    assert reruns_of(user, job).copies == [copy.pk]
    assert reruns_of(user, copy).original == job.pk


def test_the_copy_runs() -> None:
    job = ended(tasks.add.enqueue(1, b=2))
    copy = run_again(job.pk, args=[5])
    run_until_idle()
    assert Job.objects.get(pk=copy).result == 7


def test_options_that_depend_on_the_arguments_are_computed_again_if_these_change() -> None:
    job = ended(sync.using(queue_name="mail", target="special").enqueue(7))
    same, other = Job.objects.get(pk=run_again(job.pk)), Job.objects.get(pk=run_again(job.pk, args=[8]))
    assert (same.target, same.unique_key, same.queue, same.max_attempts) == ("special", "sync-7", "mail", 3)
    assert (other.target, other.unique_key) == ("customer:8", "sync-8")
    assert same.options == other.options == job.options


def test_a_job_of_an_unknown_task_runs_again() -> None:
    copy = Job.objects.get(pk=run_again(JobFactory(success=True, task="gone.tasks.one", args=[1]).pk))
    assert (copy.task, copy.args) == ("gone.tasks.one", [1])


def test_all_problems_are_named_at_once() -> None:
    job = JobFactory(task=ADD)
    with pytest.raises(CannotRunAgain) as caught:
        run_again(job.pk, args={}, kwargs=[])
    assert caught.value.problems == [
        f"Job {job.pk} is QUEUED: only a job that has ended can run again.",
        "args is not a list, such as [7].",
        'kwargs is not an object, such as {"customer_id": 7}.',
    ]
    with pytest.raises(CannotRunAgain, match="do not fit the task: missing a required argument: 'a'"):
        run_again(JobFactory(task=ADD, args=[], success=True).pk, kwargs={"b": 1})
    with pytest.raises(CannotRunAgain) as caught:
        run_again(JobFactory(task=ADD, args=[], success=True).pk, kwargs={"c": 1, "d": 2})
    [problem] = caught.value.problems
    wrong = "missing a required argument: 'a'; "
    wrong += "got an unexpected keyword argument 'c'; got an unexpected keyword argument 'd'"
    assert problem == f"The arguments do not fit the task: {wrong}. It takes: a, b."
    with pytest.raises(JobDoesNotExist):
        run_again(10**9)
    assert not JobRerun.objects.exists()


def test_a_job_whose_unique_key_is_in_use_is_refused() -> None:
    job = ended(tasks.add_once.enqueue(1))
    rival = tasks.add_once.enqueue(1)
    with pytest.raises(CannotRunAgain, match=f"Job {rival.job_id} has the unique key of job {job.pk}"):
        run_again(job.pk)


def test_a_secret_is_run_with_again_and_is_not_moved_to_another_receiver() -> None:
    kwargs = {"url": "https://a.example", "password": SECRET, "note": "x"}
    job = ended(log_in.enqueue(**kwargs))
    shown = {**kwargs, "password": MASK}
    assert Job.objects.get(pk=run_again(job.pk, kwargs=shown)).kwargs == kwargs
    with pytest.raises(CannotRunAgain, match=r"kwargs\.password: hidden as") as caught:
        run_again(job.pk, kwargs={**shown, "url": "https://evil.example"})
    assert SECRET not in str(caught.value)
    with pytest.raises(CannotRunAgain, match="Write the value again"):
        run_again(job.pk, args=["https://evil.example", MASK], kwargs={})


# REST


def test_rest_runs_a_job_again(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    job = ended(tasks.add.enqueue(1, b=2))
    with caplog.at_level(logging.INFO, "jobqueue.audit"):
        same = client.post(f"/jobqueue/jobs/{job.pk}/rerun/")
        other = client.post(f"/jobqueue/jobs/{job.pk}/rerun/", data={"kwargs": {"b": 5}}, content_type="application/json")
    assert (same.status_code, other.status_code) == (201, 201)
    assert Job.objects.get(pk=same.json()["copy"]).kwargs == {"b": 2}
    assert Job.objects.get(pk=other.json()["copy"]).kwargs == {"b": 5}
    assert f"Enqueued again over REST as job {other.json()['copy']}, with other arguments." in caplog.text


@pytest.mark.parametrize("body", ["{", "[]", '{"x": 1}', '{"args": {}}', '{"kwargs": null}', "[" * 10_000])
def test_rest_rejects_a_bad_body(client: Client, body: str) -> None:
    job = ended(tasks.add.enqueue(1))
    assert client.post(f"/jobqueue/jobs/{job.pk}/rerun/", data=body, content_type="application/json").status_code == 400
    assert Job.objects.count() == 1


def test_rest_refuses_a_job_that_has_not_ended(client: Client) -> None:
    answer = client.post(f"/jobqueue/jobs/{JobFactory(task=ADD, args=[1]).pk}/rerun/")
    assert answer.status_code == 409
    assert "only a job that has ended can run again" in answer.json()["error"]["message"]


# The command line


def command(*args: Any) -> str:
    out = io.StringIO()
    call_command("jobqueue", "rerun", *map(str, args), stdout=out)
    return out.getvalue()


def test_the_command_runs_a_job_again(caplog: pytest.LogCaptureFixture) -> None:
    job = ended(tasks.add.enqueue(1, b=2))
    with caplog.at_level(logging.INFO, "jobqueue.audit"):
        shown = command(job.pk, "--args", "[3]", "--kwargs", '{"b": 4}')
    copy = Job.objects.exclude(pk=job.pk).get()
    assert shown == f"Job {job.pk} runs again as job {copy.pk}.\n"
    assert (copy.args, copy.kwargs) == ([3], {"b": 4})
    assert f"rerun job {job.pk}: done" in caplog.text
    assert json.loads(command(job.pk, "--json"))["job"] == job.pk


@pytest.mark.parametrize("args", [["--args", "{"], ["--args", "{}"], ["--kwargs", "[]"], ["--args", "[1, 2, 3]"]])
def test_the_command_rejects_bad_arguments(args: list[str]) -> None:
    job = ended(tasks.add.enqueue(1))
    with pytest.raises(CommandError):
        command(job.pk, *args)
    assert Job.objects.count() == 1


# The admin


def page(client: Client, job: Job, query: str = "") -> str:
    return client.get(reverse("admin:jobqueue_job_change", args=[job.pk]) + query).content.decode()


def test_the_form_runs_a_job_again_without_showing_a_secret(client: Client) -> None:
    job = ended(log_in.enqueue(url="https://a.example", password=SECRET))
    form = reverse("admin:jobqueue_job_rerun", args=[job.pk])
    assert form in page(client, job)
    shown = client.get(form).content.decode()
    assert SECRET not in shown
    assert MASK in shown
    kwargs = json.dumps({"url": "https://a.example", "password": MASK, "note": "again"})
    answer = client.post(form, {"args": "[]", "kwargs": kwargs}, follow=True)
    copy = Job.objects.exclude(pk=job.pk).get()
    assert copy.kwargs == {"url": "https://a.example", "password": SECRET, "note": "again"}
    assert answer.redirect_chain == [(reverse("admin:jobqueue_job_change", args=[copy.pk]), 302)]
    assert f"Job {job.pk} runs again as job {copy.pk}." in answer.content.decode()
    assert f">job {copy.pk}</a>" in page(client, job)
    assert f">job {job.pk}</a> again" in page(client, copy)


def test_the_form_names_all_mistakes_and_keeps_what_was_written(client: Client) -> None:
    job = ended(tasks.add.enqueue(1))
    answer = client.post(reverse("admin:jobqueue_job_rerun", args=[job.pk]), {"args": "[1", "kwargs": "null"})
    assert answer.status_code == 400
    assert len(answer.context["errors"]) == 2
    assert "[1</textarea>" in answer.content.decode()
    assert Job.objects.count() == 1


def test_only_users_with_the_permission_run_a_job_again(client: Client) -> None:
    job = ended(tasks.add.enqueue(1))
    get_user_model().objects.get().user_permissions.set(Permission.objects.filter(codename="view_job"))
    form = reverse("admin:jobqueue_job_rerun", args=[job.pk])
    assert form not in page(client, job)
    assert client.get(form).status_code == client.post(form).status_code == 403
    assert client.post(f"/jobqueue/jobs/{job.pk}/rerun/").status_code == 403
    assert 'data-part="log"' not in page(client, job)


def test_a_job_that_has_not_ended_has_no_button(client: Client) -> None:
    job = JobFactory(task=ADD, args=[1])
    form = reverse("admin:jobqueue_job_rerun", args=[job.pk])
    assert form not in page(client, job)
    assert client.post(form, {"args": "[1]"}).status_code == 400
    assert client.get(reverse("admin:jobqueue_job_rerun", args=[10**9])).status_code in (302, 403)


def test_the_page_of_a_job_shows_its_log_by_run_and_level(client: Client) -> None:
    job = JobFactory(error=True, task=ADD)
    for attempt, level, text in ((1, 20, "from the first"), (2, 20, "from <b>the</b> second"), (2, 30, "a warning")):
        JobLog.objects.create(job=job, attempt=attempt, first=3, last=3, level=level, lines=json.dumps([[0, level, "shop", text]]))
    shown = page(client, job)
    assert "from &lt;b&gt;the&lt;/b&gt; second" in shown
    assert "2 earlier lines are not shown here." in shown
    assert "from the first" not in shown
    assert "from the first" in page(client, job, "?log_run=1")
    warnings = page(client, job, "?log_run=2&log_level=warning")
    assert "a warning" in warnings
    assert "second" not in warnings
    assert "a warning" in page(client, job, "?log_run=x&log_level=loud")


def test_the_parts_of_a_page_are_in_the_order_in_which_an_operator_reads(client: Client) -> None:
    history = [{"attempt": 1, "outcome": "ERROR", "traceback": "Traceback: the cause", "exception": "ValueError"}]
    shown = page(client, JobFactory(error=True, task=ADD, args=[1], history=history, attempt=1))
    parts = ["traceback", "arguments", "runs", "log", "timeline", "report"]
    places = [shown.index(f'data-part="{part}"') for part in parts]
    assert places == sorted(places)
    assert shown.count("Traceback: the cause") == 1


def test_the_run_that_succeeded_is_among_the_runs(client: Client) -> None:
    tasks.add.enqueue(1)
    run_until_idle()
    shown = page(client, Job.objects.get())
    assert "Run 1 <span" in shown
    assert "test-" in shown.split('data-part="runs"')[1].split("</section>")[0]


def test_resume_is_called_by_what_it_does(client: Client) -> None:
    user = get_user_model().objects.get()
    user.user_permissions.set(Permission.objects.filter(codename__in=("view_job", "resume_job")))
    for state, label in (("error", "Retry"), ("paused", "Resume")):
        assert f">{label}</button>" in page(client, JobFactory(**{state: True}))


def test_the_report_over_rest_names_the_original_and_the_copies(client: Client) -> None:
    job = JobFactory(task=ADD, args=[1], kwargs={"b": 2}, success=True)
    copies = [run_again(job.pk), run_again(job.pk)]
    assert client.get(f"/jobqueue/jobs/{job.pk}/").json()["reruns"] == {"original": None, "copies": copies[::-1]}
    assert client.get(f"/jobqueue/jobs/{copies[0]}/").json()["reruns"] == {"original": job.pk, "copies": []}
