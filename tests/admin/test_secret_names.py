"""A queue whose name contains a secret: no page and no answer of REST or the command line shows it."""

from __future__ import annotations

import contextlib
import io

import pytest
from django.core.management import call_command
from django.test import Client
from django.utils import timezone

from jobqueue.models import Queue
from tests.factories import DeliveryFactory, JobFactory, WorkerFactory

pytestmark = pytest.mark.django_db
NAME = "mail?token=hunter2"


@pytest.mark.long
def test_the_secret_in_the_name_of_a_queue_is_hidden(admin_client: Client) -> None:
    Queue.objects.create(name=NAME, paused=True)
    WorkerFactory(queues=["other"])
    job, failed = JobFactory(queue=NAME), JobFactory(queue=NAME, error=True, finished_at=timezone.now())
    delivery = DeliveryFactory(job=failed, queue=NAME)
    for address in (
        "/admin/jobqueue/queue/",
        "/admin/jobqueue/job/",
        f"/admin/jobqueue/job/{job.pk}/change/",
        f"/admin/jobqueue/job/{failed.pk}/change/",
        "/admin/jobqueue/webhookdelivery/",
        f"/admin/jobqueue/webhookdelivery/{delivery.pk}/change/",
        "/jobqueue/queues/",
        f"/jobqueue/jobs/{job.pk}/",
    ):
        answer = admin_client.get(address)
        assert answer.status_code == 200, address
        assert "hunter2" not in answer.content.decode(), address
    assert "mail?token=********" in admin_client.get("/admin/jobqueue/queue/").content.decode()
    for arguments in (("status",), ("status", "--json"), ("report", str(job.pk)), ("webhooks", "--json"), ("health", "--max-age", "0")):
        out = io.StringIO()
        with contextlib.suppress(SystemExit):
            call_command("jobqueue", *arguments, stdout=out)
        assert "hunter2" not in out.getvalue(), arguments
