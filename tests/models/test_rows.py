"""Rows into which raw SQL has written values of another type, which only SQLite allows: each page and command still answers."""

from __future__ import annotations

import io
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.test import Client

from jobqueue.models import Job, JobDependency, Queue, Schedule, Worker
from tests.factories import JobFactory, ScheduleFactory, WorkerFactory
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
