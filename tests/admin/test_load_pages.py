"""The pages of one queue, of all tasks, and of one task."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.utils import quote
from django.db.models import Q
from django.test import override_settings
from django.urls import reverse

from jobqueue import clock
from jobqueue.core import histograms
from jobqueue.models import Queue
from tests.admin.conftest import Login, told
from tests.admin.test_overview import EVERY, failed, sampled
from tests.factories import JobFactory, ScheduleFactory, WorkerFactory

pytestmark = pytest.mark.django_db
TASK = "demo_project.library.tasks.index_module"


def queue_url(name: str) -> str:
    return reverse("admin:jobqueue_queue_change", args=[quote(name)])


def task_url(name: str) -> str:
    return reverse("admin:jobqueue_job_task", args=[quote(name)])


def text(response: Any) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", response.content.decode().partition("<main")[2]).split())


# One queue


def test_the_page_of_a_queue_shows_its_load_and_its_first_and_running_jobs(login: Login) -> None:
    sampled(queued=7, enqueued=9, succeeded=3, failed=1, waits=histograms.of([2.0] * 4), runs=histograms.of([0.5] * 4))
    jobs = [JobFactory(queue="mail", enqueued_at=clock.now() - timedelta(minutes=5 - number)) for number in range(3)]
    running = JobFactory(queue="mail", running=True, started_at=clock.now())
    other = JobFactory(queue="index")
    shown = text(login(*EVERY).get(queue_url("mail")))
    assert "Ended 4" in shown
    assert "Failed 1 (25 %)" in shown
    assert [int(found) for found in re.findall(r"#(\d+)", shown)] == [*(job.pk for job in jobs), running.pk]
    assert f"#{other.pk}" not in shown


@pytest.mark.parametrize("period", ["1h", "24h", "14d"])
def test_the_page_of_a_queue_has_each_range(login: Login, period: str) -> None:
    sampled(queued=7, enqueued=9)
    response = login(*EVERY).get(queue_url("mail"), {"range": period})
    assert response.content.decode().count("<polyline") == 5


def test_the_page_of_a_queue_takes_turns_between_its_tenants(login: Login) -> None:
    for tenant, priority in (("a", 0), ("b", 5)):
        JobFactory.create_batch(2, queue="mail", tenant=tenant, priority=priority)
    shown = text(login(*EVERY).get(queue_url("mail")))
    assert re.findall(r"tenant (\w)", shown) == ["b", "b", "a", "a"]


def test_a_queue_without_a_row_has_a_page_and_one_that_nothing_knows_has_none(login: Login) -> None:
    client = login(*EVERY)
    JobFactory(queue="a/b c_d")
    assert "a/b c_d" in text(client.get(queue_url("a/b c_d")))
    for name in ("nosuch", "no\0such"):
        response = client.get(queue_url(name))
        assert response.status_code == 302
        assert "There is no queue" in told(response)[0]


def test_the_page_warns_of_a_name_that_nothing_uses_and_offers_to_forget_it(login: Login) -> None:
    Queue.objects.create(name="mial", paused=True)
    client = login(*EVERY, "delete_queue")
    response = client.get(queue_url("mial"))
    assert "No task, setting, schedule, worker or recent job has a queue" in text(response)
    assert "Forget" in text(response)
    client.post(reverse("admin:jobqueue_queue_decide", args=["forget"]), {"queue": "mial"})
    assert not Queue.objects.exists()


def test_the_verbs_of_the_page_lead_back_to_it(login: Login) -> None:
    JobFactory(queue="mail")
    client = login(*EVERY, "pause_queue", "resume_queue", "change_queue")
    response = client.post(reverse("admin:jobqueue_queue_decide", args=["pause"]), {"queue": "mail", "from": "queue"}, follow=True)
    assert response.redirect_chain == [(queue_url("mail"), 302)]
    assert "Paused" in text(response)
    assert "Resume" in text(response)
    client.post(reverse("admin:jobqueue_queue_decide", args=["limit"]), {"queue": "mail", "from": "queue", "max_running": "3"})
    assert "of at most 3" in text(client.get(queue_url("mail")))


def test_the_page_has_no_verb_that_the_user_may_not_use_and_no_jobs_without_their_permission(login: Login) -> None:
    job = JobFactory(queue="mail")
    shown = text(login("view_queue").get(queue_url("mail")))
    assert "Pause" not in shown
    assert f"#{job.pk}" not in shown
    assert login("view_job").get(queue_url("mail")).status_code == 403
    assert login(*EVERY).post(queue_url("mail")).status_code == 403


def mine(user: Any) -> Q:
    return Q(tenant="mine")


@override_settings(JOBQUEUE={"VISIBLE_JOBS": "tests.admin.test_load_pages.mine"})
def test_a_user_who_may_see_some_jobs_sees_these_and_no_load(login: Login) -> None:
    sampled(queued=7)
    seen, hidden = JobFactory(queue="mail", tenant="mine"), JobFactory(queue="mail", tenant="other")
    JobFactory(queue="hidden", tenant="other")
    failed(1, tenant="other")
    client = login(*EVERY)
    response = client.get(queue_url("mail"))
    assert f"#{seen.pk}" in text(response)
    assert f"#{hidden.pk}" not in text(response)
    assert "<polyline" not in response.content.decode()
    assert client.get(queue_url("hidden")).status_code == 302
    sampled("task", TASK, enqueued=9, succeeded=5)
    assert "<polyline" not in client.get(task_url(TASK)).content.decode()
    assert "Tasks of this project" in text(client.get(reverse("admin:jobqueue_job_tasks")))
    assert "No job is in error" in text(client.get(task_url("tests.tasks.add")))


# Tasks


def test_the_list_of_tasks_shows_their_load_and_the_tasks_without_one(login: Login) -> None:
    sampled("task", "shop.tasks.fast", succeeded=100, run_seconds=10.0, runs=[0] * 12 + [100])
    sampled("task", "shop.tasks.slow", succeeded=2, failed=2, run_seconds=90.0, runs=[0] * 30 + [4], waits=[0] * 20 + [4])
    client = login(*EVERY)
    url = reverse("admin:jobqueue_job_tasks")
    shown = text(client.get(url))
    assert shown.index("slow shop.tasks") < shown.index("fast shop.tasks")
    assert TASK in shown.partition("Tasks without a job in this range")[2]
    by_name = text(client.get(url, {"sort": "ended"}))
    assert by_name.index("fast shop.tasks") < by_name.index("slow shop.tasks")


@pytest.mark.parametrize("query", [{"sort": "x"}, {"range": "14d"}, {"range": "y"}, {"sort": "\0"}])
def test_a_list_of_tasks_that_cannot_be_is_a_bad_request(login: Login, query: dict[str, str]) -> None:
    assert login(*EVERY).get(reverse("admin:jobqueue_job_tasks"), query).status_code == 400


@pytest.mark.parametrize("sort", ["time", "name", "ended", "p95", "wait", "failed"])
def test_the_list_of_tasks_has_each_order(login: Login, sort: str) -> None:
    sampled("task", "shop.tasks.fast", enqueued=1)
    assert login(*EVERY).get(reverse("admin:jobqueue_job_tasks"), {"sort": sort, "range": "24h"}).status_code == 200


def test_the_page_of_a_task_shows_its_declaration_its_load_its_errors_and_its_schedules(login: Login) -> None:
    sampled("task", TASK, enqueued=9, succeeded=3, failed=1, runs=histograms.of([0.5] * 4), waits=histograms.of([0.5] * 4))
    failed(3, task=TASK)
    ScheduleFactory(name="nightly", task=TASK)
    running = JobFactory(task=TASK, running=True)
    shown = text(login(*EVERY).get(task_url(TASK)))
    for part in ("index_module(", "Queue index", "Failed 1 (25 %)", "nightly", f"#{running.pk}", "card declined"):
        assert part in shown
    assert re.search(r"Last errors .* 3 ", shown)


def test_a_task_that_this_process_does_not_know_has_a_page_if_something_else_does(login: Login) -> None:
    client = login(*EVERY)
    assert client.get(task_url("shop.tasks.gone")).status_code == 404
    assert client.get(task_url("shop.tasks.gone\0")).status_code == 404
    sampled("task", "shop.tasks.gone", enqueued=1)
    from jobqueue.core import recent

    recent.forget()
    assert "This process has no task of this name." in text(client.get(task_url("shop.tasks.gone")))


def test_the_pages_of_tasks_need_the_permission_to_view_jobs(login: Login) -> None:
    for url in (reverse("admin:jobqueue_job_tasks"), task_url(TASK)):
        assert login("view_queue").get(url).status_code == 403
        assert login(*EVERY).post(url).status_code == 403


def test_a_user_without_the_permission_to_view_queues_sees_no_load(login: Login) -> None:
    sampled("task", TASK, enqueued=9, succeeded=5)
    WorkerFactory()
    client = login("view_job")
    assert "<polyline" not in client.get(task_url(TASK)).content.decode()
    assert "Tasks of this project" in text(client.get(reverse("admin:jobqueue_job_tasks")))
