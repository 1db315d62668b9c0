"""The properties of a job, and its table."""

from __future__ import annotations

import importlib
import io
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, models
from django.utils import timezone

from jobqueue.core import states
from jobqueue.insight.report import report
from jobqueue.models import Job, Worker
from tests.factories import JobFactory, WorkerFactory

storage: Any = importlib.import_module("jobqueue.migrations.0002_storage")


def test_the_states_are_named_by_the_job_and_stored_by_name() -> None:
    names = ["PENDING", "QUEUED", "RUNNING", "PAUSED", "ERROR", "SUCCESS", "CANCELED"]
    assert [status.value for status in Job.Status] == names == [status.name for status in Job.Status]
    assert Job.Status is states.Status


def test_a_job_shows_its_task_and_number() -> None:
    assert str(Job(pk=7, task="shop.tasks.send")) == "shop.tasks.send #7"


@pytest.mark.parametrize(("status", "waiting_for"), [("QUEUED", ""), ("PENDING", "time"), ("PENDING", "target")])
def test_its_place_is_its_status_and_what_it_waits_for(status: str, waiting_for: str) -> None:
    assert Job(status=status, waiting_for=waiting_for).place == (status, waiting_for)


@pytest.mark.parametrize("status", Job.Status.values)
@pytest.mark.parametrize("begun", [False, True])
def test_assigned_is_what_runs_and_has_not_begun(status: str, begun: bool) -> None:
    job = Job(status=status, started_at=timezone.now() if begun else None)
    assert job.assigned == (status == "RUNNING" and not begun)


def test_the_last_error_is_the_newest_entry_of_the_history() -> None:
    assert Job().last_error is None
    assert Job(history=[{"attempt": 1}, {"attempt": 2}]).last_error == {"attempt": 2}


@pytest.mark.django_db
def test_a_worker_is_named_by_host_and_process() -> None:
    worker = WorkerFactory(host="web-1", pid=42)
    assert str(worker) == "web-1:42"
    assert Worker.objects.get().state == "RUNNING"


def test_every_column_has_a_default_in_the_database_or_may_be_null() -> None:
    fields = [field for field in Job._meta.concrete_fields if not field.primary_key and not isinstance(field, models.GeneratedField)]
    assert [field.name for field in fields if not field.null and not field.has_db_default()] == ["task"]


def test_the_heartbeats_columns_are_in_no_index() -> None:
    indexed = {name for index in Job._meta.indexes for name in index.fields}
    assert not indexed & {"lease_expires_at", "heartbeat_at", "lease_token", "progress", "message"}


@pytest.mark.django_db
def test_the_migrations_say_all_that_the_models_say() -> None:
    call_command("makemigrations", "jobqueue", check=True, dry_run=True, stdout=io.StringIO())


def options() -> dict[str, str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT reloptions FROM pg_class WHERE oid = 'jobqueue_job'::regclass")
        return dict(option.split("=", 1) for option in cursor.fetchone()[0] or ())


@pytest.mark.postgresql
@pytest.mark.django_db
def test_the_hot_table_has_room_in_its_pages_and_is_vacuumed_often() -> None:
    assert options() == storage.PARAMETERS
    assert storage.PARAMETERS["fillfactor"] == "70"


@pytest.mark.long
@pytest.mark.postgresql
@pytest.mark.django_db
def test_the_storage_migration_can_be_undone() -> None:
    call_command("migrate", "jobqueue", "0001", verbosity=0)
    assert options() == {}
    call_command("migrate", "jobqueue", verbosity=0)
    assert options() == storage.PARAMETERS


@pytest.mark.django_db
@pytest.mark.parametrize(
    "trait",
    [
        "queued",
        "scheduled",
        "due",
        "waiting_for_children",
        "waiting_for_target",
        "waiting_for_retry",
        "running",
        "expired",
        "paused",
        "error",
        "success",
        "canceled",
    ],
)
def test_the_factory_makes_rows_that_the_product_could_have_left(trait: str) -> None:
    job = JobFactory(**{trait: True})
    job.refresh_from_db()
    assert job.place in states.MOVES
    assert job.attempt == len(job.worker_ids) + (job.status == "RUNNING")
    assert (job.finished_at is not None) == (job.status in states.ENDED)


@pytest.mark.django_db
def test_a_job_reports_on_itself() -> None:
    job = JobFactory(error=True, history=[{"attempt": 1, "message": "no", "traceback": "T"}])
    assert job.report() == report(job)
    assert "traceback" not in job.report()["runs"][0]
    assert job.report(tracebacks=True)["runs"][0]["traceback"] == "T"
