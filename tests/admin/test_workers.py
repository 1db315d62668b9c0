"""The list of workers."""

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from jobqueue.models import Worker
from tests.factories import JobFactory, WorkerFactory

pytestmark = pytest.mark.django_db
WORKERS = "/admin/jobqueue/worker/"


def test_a_worker_is_shown_with_host_pid_queues_slots_and_version(viewer: Client) -> None:
    one = WorkerFactory(host="web-1", pid=4121, queues=["mail", "images"], slots=16, running=9, version="7.8.9", release="2026.11")
    JobFactory.create_batch(5, running=True, lease_owner=str(one.pk))
    page = viewer.get(WORKERS).content.decode()
    assert all(text in page for text in ("web-1:4121", "mail, images", ">16<", ">5<", "7.8.9", "2026.11", "jq-running"))


def test_a_worker_without_a_heartbeat_for_half_a_minute_is_silent(viewer: Client) -> None:
    WorkerFactory(heartbeat_at=timezone.now() - timedelta(seconds=25))
    assert "jq-silent" not in viewer.get(WORKERS).content.decode()
    WorkerFactory(heartbeat_at=timezone.now() - timedelta(seconds=35))
    assert "jq-silent" in viewer.get(WORKERS).content.decode()


def test_draining_and_stuck_threads_catch_the_eye(viewer: Client) -> None:
    WorkerFactory(state=Worker.State.DRAINING, stuck=2)
    page = viewer.get(WORKERS).content.decode()
    assert "jq-draining" in page
    assert 'class="jq-alarm">2<' in page


def test_a_worker_cannot_be_changed(admin_client: Client) -> None:
    worker = WorkerFactory(queues={"odd": 1}, host="<script>alert(1)</script>")
    url = f"{WORKERS}{worker.pk}/change/"
    assert admin_client.get(url).status_code == 200
    assert "<script>alert" not in admin_client.get(url).content.decode() + admin_client.get(WORKERS).content.decode()
    assert admin_client.post(url, {"host": "other"}).status_code == 403
    assert admin_client.post(f"{WORKERS}{worker.pk}/delete/", {"post": "yes"}).status_code == 403
    assert admin_client.get(f"{WORKERS}add/").status_code == 403
    assert Worker.objects.get().host == worker.host


def test_a_stuck_service_is_named_loudly(viewer: Client) -> None:
    WorkerFactory(services={"finisher": {"age": 40.0, "busy": 35.0, "failures": 0}})
    page = viewer.get(WORKERS).content.decode()
    assert '<strong class="jq-alarm">its finisher has not completed its current turn for 35 s</strong>' in page
    Worker.objects.update(services={})
    assert "OK" in viewer.get(WORKERS).content.decode()


def test_the_last_change_of_slots_is_shown_with_its_reason_and_nonsense_is_not(viewer: Client) -> None:
    told = {"age": 3.0, "before": 2, "after": 8, "running": 2, "claimable": 6, "why": "more jobs than <slots>"}
    worker = WorkerFactory(slots=8, scaling=told, heartbeat_at=timezone.now() - timedelta(seconds=4))
    page = viewer.get(WORKERS).content.decode()
    assert '8 <span class="jq-note" title="more jobs than &lt;slots&gt; (2 running, 6 claimable)">2 → 8, 7.' in page
    one = viewer.get(f"{WORKERS}{worker.pk}/change/").content.decode()
    assert "ago: more jobs than &lt;slots&gt; (2 running, 6 claimable)" in one
    for odd in ({}, [], {"age": "long"}, {**told, "after": None}):
        Worker.objects.update(scaling=odd)
        assert "→" not in viewer.get(WORKERS).content.decode()
        assert viewer.get(f"{WORKERS}{worker.pk}/change/").status_code == 200
