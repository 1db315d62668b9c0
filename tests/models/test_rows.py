"""Rows into which raw SQL has written values of another type, which only SQLite allows: each page and command still answers."""

from __future__ import annotations

import io
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.test import Client

from jobqueue import clock
from jobqueue.duties.forget_dead_workers import ForgetDeadWorkers
from jobqueue.models import Job, JobDependency, Queue, Schedule, WebhookDelivery, Worker
from tests.factories import DeliveryFactory, JobFactory, ScheduleFactory, WorkerFactory
from tests.unchecked import unchecked, write

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]
NUMBERS = [(Worker, "stuck"), (Worker, "slots"), (Worker, "running"), (Schedule, "interval_seconds"), (Queue, "max_running")]


@pytest.mark.parametrize("value", ["x'00'", "'x'"])
@pytest.mark.parametrize(("model", "column"), [*NUMBERS, (JobDependency, "child_id")], ids=lambda one: getattr(one, "__name__", one))
def test_a_text_in_a_number_column_ends_no_page_and_no_command(model: Any, column: str, value: str) -> None:
    scheduled, waiting = JobFactory(scheduled=True), JobFactory(waiting_for_children=True)
    rows: dict[Any, Any] = {Worker: WorkerFactory(), Schedule: ScheduleFactory(cron="", interval_seconds=60)}
    rows[Queue] = Queue.objects.create(name="mail", max_running=1)
    rows[JobDependency] = JobDependency.objects.create(parent=waiting, child=scheduled)
    with unchecked():
        write(model, rows[model].pk, column, value)
    client = Client(raise_request_exception=False)
    client.force_login(get_user_model().objects.create_superuser("root"))
    admin = "/admin/jobqueue"
    pages = [f"{admin}/{name}/" for name in ("worker", "schedule", "queue", "job")] + ["/jobqueue/queues/"]
    for job in (scheduled, waiting):
        pages += [f"{admin}/job/{job.pk}/change/", f"/jobqueue/jobs/{job.pk}/"]
    assert [(page, status) for page in pages if (status := client.get(page).status_code) != 200] == []
    for command in ("status", "schedules", "report"):
        jobs = [str(Job.objects.order_by("pk").values_list("pk", flat=True)[0])] if command == "report" else []
        for more in ([], ["--json"]):
            call_command("jobqueue", command, *jobs, *more, stdout=io.StringIO())


JUNK = [
    "'junk'",
    "''",
    "7",
    "2.5",
    "x'00ff'",
    "'zz' || hex(randomblob(15))",
    "hex(randomblob(16)) || char(0) || 'x'",
    "'é' || hex(randomblob(15))",
]


@pytest.mark.parametrize("value", JUNK)
@pytest.mark.parametrize("model", [WebhookDelivery, Worker])
def test_a_value_that_is_no_uuid_ends_no_page_and_no_command(model: Any, value: str) -> None:
    rows = {WebhookDelivery: DeliveryFactory(), Worker: WorkerFactory()}
    other = {WebhookDelivery: DeliveryFactory(), Worker: WorkerFactory()}[model]
    write(model, rows[model].pk, "message_id" if model is WebhookDelivery else "id", value)
    client = Client(raise_request_exception=False)
    client.force_login(get_user_model().objects.create_superuser("root"))
    pages = ["/admin/jobqueue/webhookdelivery/", "/admin/jobqueue/worker/", "/jobqueue/workers/"]
    pages += [f"/admin/jobqueue/webhookdelivery/{rows[WebhookDelivery].pk}/change/"]
    assert [(page, status) for page in pages if (status := client.get(page).status_code) != 200] == []
    for command in ("webhooks", "status"):
        call_command("jobqueue", command, stdout=io.StringIO())
    name = "message_id" if model is WebhookDelivery else "id"
    first, second = (sorted(model.objects.values_list(name, flat=True)) for _ in range(2))
    assert first == second  # the same at each reading
    assert len({*first}) == 2
    assert getattr(other, name) in first


def test_a_uuid_with_hyphens_of_other_software_is_read_as_it_is() -> None:
    worker = WorkerFactory()
    write(Worker, worker.pk, "id", f"'{worker.pk}'")
    assert Worker.objects.values_list("id", flat=True).get() == worker.pk


def test_a_dead_worker_whose_id_is_no_uuid_does_not_stop_the_deletion_of_others() -> None:
    bad, good = (WorkerFactory(heartbeat_at=clock.now() - timedelta(days=2)) for _ in range(2))
    write(Worker, bad.pk, "id", "'junk'")
    assert ForgetDeadWorkers().run_once(clock.now()).items == 1
    assert not Worker.objects.filter(pk=good.pk).exists()
