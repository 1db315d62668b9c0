"""What is shown of workers: one worker with its jobs and stuck threads, the releases, and those that left."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.management.base import CommandError
from django.db.models import Q
from django.test import Client

from jobqueue import clock
from jobqueue.insight.worker_page import left_workers, releases
from jobqueue.lifecycle import workers
from jobqueue.lifecycle.workers import record_left
from jobqueue.models import BackgroundJobLease, LeftWorker, Worker
from tests.admin.conftest import Login, login  # noqa: F401 - a fixture
from tests.admin.conftest import told as messages
from tests.command import run, told
from tests.factories import JobFactory, WorkerFactory

pytestmark = pytest.mark.django_db
LINE = "/srv/shop/tasks.py:17, in charge"


@pytest.fixture
def worker() -> Worker:
    made: Worker = WorkerFactory(host="web-1", pid=7, slots=4, stuck=1, memory_mb=321, release="2026.11", queues=["mail"])
    stuck = JobFactory(canceled=True, task="shop.tasks.charge")
    Worker.objects.filter(pk=made.pk).update(stuck_runs=[{"job": stuck.pk, "task": stuck.task, "line": LINE}])
    JobFactory(running=True, lease_owner=str(made.pk), task="shop.tasks.mail")
    now = clock.now()
    BackgroundJobLease.objects.create(job_name="promote_due_jobs", held_by_worker_id=str(made.pk), lease_acquired_at=now, heartbeat_at=now)
    return made


def test_the_page_of_a_worker_shows_its_jobs_its_stuck_threads_and_its_duties(login: Login, worker: Worker) -> None:  # noqa: F811
    url = f"/admin/jobqueue/worker/{worker.pk}/change/"
    page = login("view_worker", "view_job").get(url).content.decode()
    for text in (LINE, "shop.tasks.charge", "shop.tasks.mail", "321 MB", "2026.11", "promote_due_jobs"):
        assert text in page
    assert "Drain" not in page
    page = login("view_worker").get(url).content.decode()
    assert "shop.tasks" not in page


def test_the_command_and_rest_show_the_same(client: Client, login: Login, worker: Worker) -> None:  # noqa: F811
    text = run("workers", "web-1:7")[0]
    for part in (LINE, "shop.tasks.mail", "321 MB", "release 2026.11", "leads promote_due_jobs", "1 stuck thread"):
        assert part in text
    found = told("workers", str(worker.pk))[0]
    assert (found["running"], found["jobs"][0]["task"], found["stuck"][0]["line"]) == (1, "shop.tasks.mail", LINE)
    shown = login("view_worker", "view_job").get(f"/jobqueue/workers/{worker.pk}/").json()
    assert (shown["stuck"], shown["duties"]) == (found["stuck"], ["promote_due_jobs"])
    with pytest.raises(CommandError, match="There is no worker 'web-9:1'"):
        run("workers", "web-9:1")
    assert login("view_worker", "view_job").get("/jobqueue/workers/web-9%3A1/").status_code == 404


def other_tenants(user: Any) -> Q:
    return Q(tenant="other")


def test_jobs_that_the_user_may_not_see_are_not_shown(login: Login, worker: Worker, settings: Any) -> None:  # noqa: F811
    settings.JOBQUEUE = {"VISIBLE_JOBS": other_tenants}
    client = login("view_worker", "view_job")
    assert "shop.tasks" not in client.get(f"/admin/jobqueue/worker/{worker.pk}/change/").content.decode()
    shown = client.get(f"/jobqueue/workers/{worker.pk}/").json()
    assert (shown["jobs"], shown["stuck"]) == ([], [])


@pytest.mark.parametrize("junk", ["x", 7, [7, {"job": "7"}, {"job": True}, {"job": 2**70, "line": None}], {"job": 1}])
def test_stuck_runs_that_were_edited_by_hand_stop_no_page(login: Login, worker: Worker, junk: Any) -> None:  # noqa: F811
    Worker.objects.update(stuck_runs=junk)
    assert login("view_worker", "view_job").get(f"/admin/jobqueue/worker/{worker.pk}/change/").status_code == 200
    assert told("workers", str(worker.pk))[0]["stuck"] == []


def test_a_worker_is_drained_on_its_page_by_permission_and_by_post_only(login: Login, worker: Worker) -> None:  # noqa: F811
    client = login("view_worker", "drain_worker")
    page = f"/admin/jobqueue/worker/{worker.pk}/"
    assert client.get(f"{page}drain/").status_code == 302
    assert login("view_worker").post(f"{page}drain/").status_code == 403
    assert not Worker.objects.filter(drain_requested=True).exists()
    assert ">Drain</button>" in client.get(f"{page}change/").content.decode()
    response = client.post(f"{page}drain/")
    assert messages(response) == ["Worker web-1:7 is drained: it starts no more jobs, and its running jobs continue."]
    assert Worker.objects.get().drain_requested
    assert ">Undrain</button>" in client.get(f"{page}change/").content.decode()
    client.post(f"{page}undrain/")
    assert not Worker.objects.get().drain_requested
    history = client.get(f"{page}history/").content.decode()
    assert "Drained." in history
    Worker.objects.all().delete()
    assert messages(client.post(f"{page}drain/")) == ["The worker has left."]


def test_live_workers_are_summed_up_by_release(login: Login) -> None:  # noqa: F811
    for release in ("1.0", "1.1", "1.1"):
        WorkerFactory(release=release, slots=4)
    assert [(one.name, one.workers, one.slots) for one in releases()] == [("1.0", 1, 4), ("1.1", 2, 8)]
    page = login("view_worker").get("/admin/jobqueue/worker/").content.decode()
    assert "jq-releases" in page
    assert page.index(">1.0<") < page.index(">1.1<")


def test_a_worker_that_left_is_listed_with_how_and_only_the_newest_are_kept(
    login: Login,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workers, "MAX_LEFT", 3)
    stopped, gone = LeftWorker.How.STOPPED, LeftWorker.How.KILLED
    for number in range(4):
        record_left([WorkerFactory(host=f"old-{number}").pk], stopped)
    drained = WorkerFactory(host="web-1", pid=7, drain_requested=True, release="2026.11")
    record_left([drained.pk], stopped, "it was asked to stop")
    killed = WorkerFactory(host="web-2", pid=8, drain_requested=True)
    assert record_left([str(killed.pk)], gone) == 1
    assert record_left([killed.pk], gone) == 0
    assert [(one.process, one.how) for one in left_workers()][:2] == [("web-2:8", "killed"), ("web-1:7", "drained")]
    assert LeftWorker.objects.count() == 3
    assert not Worker.objects.exists()
    page = login("view_worker").get("/admin/jobqueue/worker/").content.decode()
    for text in ("web-1:7", "drained, then stopped", "it was asked to stop", "web-2:8", "2026.11"):
        assert text in page
    assert "web-2:8" in run("workers")[0]
    assert told("workers")[0]["left"][0]["how"] == "killed"
    assert login("view_worker").get("/jobqueue/workers/").json()["left"][1]["reason"] == "it was asked to stop"
