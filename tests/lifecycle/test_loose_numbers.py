"""Columns of numbers that hold no number, which only SQLite allows, in the rows that refer to jobs and that limit them."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.urls import reverse

from jobqueue.lifecycle.children import resume_parents
from jobqueue.lifecycle.queues import limit_queue
from jobqueue.models import Job, JobDependency, Queue, WebhookDelivery
from jobqueue.webhooks import redelivery
from tests.factories import DeliveryFactory, JobFactory
from tests.tasks import add
from tests.unchecked import unchecked, write
from tests.worker.whole import ended, working

pytestmark = [pytest.mark.sqlite, pytest.mark.parametrize("junk", ["x'00'", "'x'", "1.5"])]


@pytest.mark.django_db
def test_a_delivery_of_no_job_has_a_page_and_can_be_given_up(client: Client, junk: str) -> None:
    client.force_login(get_user_model().objects.create_superuser("chief"))
    waiting, failed = DeliveryFactory(), DeliveryFactory(failed=True)
    for row in (waiting, failed):
        with unchecked():
            write(WebhookDelivery, row.pk, "job_id", junk)
        assert client.get(reverse("admin:jobqueue_webhookdelivery_change", args=[row.pk])).status_code == 200
    assert client.get(reverse("admin:jobqueue_webhookdelivery_changelist")).status_code == 200
    assert redelivery.give_up(waiting.pk)
    redelivery.use_current_url(failed.pk)


@pytest.mark.django_db
def test_a_child_that_is_no_job_keeps_no_parent_waiting(junk: str) -> None:
    parent, other = JobFactory(waiting_for_children=True), JobFactory(waiting_for_children=True)
    lost = JobDependency.objects.create(parent=parent, child=JobFactory())
    JobDependency.objects.create(parent=other, child=JobFactory(success=True))
    with unchecked():
        write(JobDependency, lost.pk, "child_id", junk)
    assert resume_parents() == 2
    assert set(Job.objects.filter(pk__in=[parent.pk, other.pk]).values_list("status", flat=True)) == {"QUEUED"}


@pytest.mark.django_db(transaction=True)
def test_a_limit_that_is_no_number_stops_its_queue_alone(junk: str, caplog: Any) -> None:
    for name in ("bad", "good"):
        limit_queue(name, 1)
    with unchecked():
        write(Queue, "bad", "max_running", junk)
    stopped = JobFactory(queue="bad", task=add.module_path, args=[1])
    good = [JobFactory(queue=name, task=add.module_path, args=[1]) for name in ("good", "good", "default")]
    with working():
        assert ended(*good) == ["SUCCESS"] * 3
    assert Job.objects.get(pk=stopped.pk).status == "QUEUED"
    assert not [one.getMessage() for one in caplog.records if "failed (try" in one.getMessage()]
