"""The constraints of the database reject impossible states of jobs, from any client."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, connection, models, transaction
from django.utils import timezone

from jobqueue import enqueue_many
from jobqueue.core import states
from jobqueue.models import (
    AuditRecord,
    BackgroundJobLease,
    BulkAction,
    Job,
    JobDependency,
    JobEvent,
    JobLog,
    JobPhase,
    JobRerun,
    LeftWorker,
    Queue,
    Sample,
    Schedule,
    ScheduleTick,
    WebhookDelivery,
    Worker,
)
from tests import tasks
from tests.factories import DeliveryFactory, JobFactory, ScheduleFactory
from tests.unchecked import MODELS, unchecked, write

LEASE = "lease_owner = 'w', lease_expires_at = CURRENT_TIMESTAMP, heartbeat_at = CURRENT_TIMESTAMP"

REFUSED = {
    "a status that does not exist": ("jobqueue_job_status", {}, "status = 'DONE'"),
    "a status in lower case": ("jobqueue_job_status", {}, "status = 'queued'"),
    "PENDING for nothing": ("jobqueue_job_status", {"scheduled": True}, "waiting_for = ''"),
    "PENDING for something unknown": ("jobqueue_job_status", {"scheduled": True}, "waiting_for = 'rain'"),
    "QUEUED that waits": ("jobqueue_job_status", {}, "waiting_for = 'time'"),
    "SUCCESS that waits": ("jobqueue_job_status", {"success": True}, "waiting_for = 'target'"),
    "RUNNING without an owner": ("jobqueue_job_lease", {"running": True}, "lease_owner = ''"),
    "RUNNING without an end of its lease": ("jobqueue_job_lease", {"running": True}, "lease_expires_at = NULL"),
    "RUNNING without a heartbeat": ("jobqueue_job_lease", {"running": True}, "heartbeat_at = NULL"),
    "RUNNING by status alone": ("jobqueue_job_lease", {}, "status = 'RUNNING'"),
    "QUEUED with an owner": ("jobqueue_job_lease", {}, "lease_owner = 'w'"),
    "QUEUED with a lease": ("jobqueue_job_lease", {}, LEASE),
    "SUCCESS with an end of a lease": ("jobqueue_job_lease", {"success": True}, "lease_expires_at = CURRENT_TIMESTAMP"),
    "PAUSED with a heartbeat": ("jobqueue_job_lease", {"paused": True}, "heartbeat_at = CURRENT_TIMESTAMP"),
    "progress below 0": ("jobqueue_job_progress", {}, "progress = -1"),
    "progress above 100": ("jobqueue_job_progress", {}, "progress = 101"),
    "a target held without a target": ("jobqueue_job_holds_target", {}, "holds_target = TRUE"),
    "SUCCESS that holds its target": ("jobqueue_job_holds_target", {"success": True, "target": "t"}, "holds_target = TRUE"),
    "CANCELED that holds its target": ("jobqueue_job_holds_target", {"canceled": True, "target": "t"}, "holds_target = TRUE"),
    "RUNNING that does not hold its target": ("jobqueue_job_holds_target", {"running": True, "target": "t"}, "holds_target = FALSE"),
}


def refuse(sql: str, name: str) -> None:
    """Check that a statement is refused by the constraint of that name."""
    with pytest.raises(IntegrityError) as caught, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(sql)
    # SQLite names the columns of a unique index in place of its name.
    columns = {"jobqueue_job_one_holder": "jobqueue_job.target", "jobqueue_job_unique_key": "jobqueue_job.unique_key"}
    assert name in str(caught.value) or columns.get(name, "?") in str(caught.value)


@pytest.mark.django_db
@pytest.mark.parametrize("what", REFUSED)
def test_the_database_refuses(what: str) -> None:
    name, traits, change = REFUSED[what]
    job = JobFactory(**traits)
    refuse(f"UPDATE jobqueue_job SET {change} WHERE id = {job.pk}", name)


def test_every_constraint_of_the_table_is_tried() -> None:
    tried = {name for name, _, _ in REFUSED.values()} | {"jobqueue_job_one_holder", "jobqueue_job_unique_key", "jobqueue_job_times"}
    assert tried == {one.name for one in Job._meta.constraints}


@pytest.mark.django_db
@pytest.mark.parametrize(
    "change",
    ["holds_target = TRUE", f"status = 'RUNNING', holds_target = TRUE, {LEASE}"],
)
def test_the_database_refuses_a_second_holder_of_a_target(change: str) -> None:
    JobFactory(running=True, target="customer:7")
    second = JobFactory(target="customer:7")
    refuse(f"UPDATE jobqueue_job SET {change} WHERE id = {second.pk}", "jobqueue_job_one_holder")


@pytest.mark.django_db
def test_holders_of_other_targets_and_other_tenants_are_welcome() -> None:
    JobFactory(running=True, target="customer:7")
    JobFactory(running=True, target="customer:8")
    JobFactory(running=True, target="customer:7", tenant="acme")
    JobFactory(running=True)
    JobFactory(running=True)


KEYED: dict[str, dict[str, Any]] = {
    "PENDING": {"scheduled": True},
    "QUEUED": {},
    "RUNNING": {"running": True},
    "PAUSED": {"paused": True},
    "ERROR": {"error": True},
    "SUCCESS": {"success": True},
    "CANCELED": {"canceled": True},
}


@pytest.mark.django_db
@pytest.mark.parametrize("status", KEYED)
def test_the_database_refuses_a_second_live_job_of_a_unique_key(status: str) -> None:
    JobFactory(**KEYED[status], unique_key="report:7")
    insert = "INSERT INTO jobqueue_job (task, unique_key) VALUES ('a.b', 'report:7')"
    if status in states.LIVE:
        refuse(insert, "jobqueue_job_unique_key")
    else:
        with connection.cursor() as cursor:
            cursor.execute(insert)
        assert Job.objects.filter(unique_key="report:7").count() == 2


@pytest.mark.django_db
def test_a_unique_key_is_unique_per_tenant_and_none_is_no_key() -> None:
    JobFactory(unique_key="report:7")
    JobFactory(unique_key="report:7", tenant="acme")
    JobFactory.create_batch(2, unique_key="")
    assert Job.objects.count() == 4


@pytest.mark.django_db
def test_a_row_of_raw_sql_that_names_only_its_task_is_a_whole_job() -> None:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO jobqueue_job (task) VALUES ('tests.tasks.add')")
    job = Job.objects.get()
    assert (job.status, job.queue, job.args, job.kwargs, job.options, job.history) == ("QUEUED", "default", [], {}, {}, [])
    assert (job.max_attempts, job.recovery, job.claim_rank) == (1, "requeue", 0)
    assert job.created_at is not None


@pytest.mark.django_db
@pytest.mark.parametrize("priority", [-100, 0, 100])
def test_the_rank_follows_the_priority_in_any_write(priority: int) -> None:
    job = JobFactory()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE jobqueue_job SET priority = %s", [priority])
    job.refresh_from_db()
    assert job.claim_rank == -priority


def row_of(model: Any, column: str = "") -> Any:
    """Return a row of a model, with a value for each of its times that may have one."""
    now = timezone.now()
    if model is Job:
        return JobFactory(running=True) if column in ("lease_expires_at", "heartbeat_at") else JobFactory(scheduled=True)
    job = JobFactory()
    made: dict[Any, dict[str, Any]] = {
        BackgroundJobLease: {"job_name": "d", "held_by_worker_id": "w", "lease_acquired_at": now, "heartbeat_at": now},
        JobDependency: {"parent": job, "child_id": 7},
        JobEvent: {"job": job, "name": "job.started"},
        BulkAction: {"verb": "cancel", "query": "status:ERROR", "upto_id": 0},
        JobLog: {"job": job, "lines": "[]"},
        JobRerun: {"original": job, "copy": job},
        JobPhase: {"job": job, "position": 0, "name": "first", "started_at": now},
        Queue: {"name": "mail"},
        Sample: {"kind": "queue", "name": "mail", "seconds": 10, "slot": 1, "begins": 0},
        ScheduleTick: {"nominal_at": now},
        Worker: {"id": uuid.uuid4()},
        AuditRecord: {"actor": "user anna", "verb": "cancel"},
        LeftWorker: {"worker": uuid.uuid4(), "how": "killed"},
    }
    if model is WebhookDelivery:
        return DeliveryFactory(job=job)
    if model is Schedule:
        return ScheduleFactory(next_at=now, last_at=None)
    if model is ScheduleTick:
        made[model]["schedule"] = ScheduleFactory(next_at=now, last_at=None)
    return model.objects.create(**made[model])


TIMES = [(model, one.column) for model in MODELS for one in model._meta.fields if isinstance(one, models.DateTimeField)]
OUT_OF_RANGE = ["infinity", "-infinity", "0044-03-15 12:00:00 BC", "1969-12-30 00:00:00", "9000-01-03 00:00:00", "12000-01-01 00:00:00"]
# SQLite takes any text.
ODD = [
    *("infinity", "0000-01-01 00:00:00", "1969-12-30 00:00:00", "9999-12-31 23:59:59", "12000-01-01 00:00:00", "", "2030-junk", "now"),
    *(
        "2026-13-45 99:99:99",
        "2026-02-30 00:00:00",
        "2026-01-01 24:00:00",
        "2026-01-01 10:60:00",
        "2026-01-01 00:00:00 ",
        "2026-01-01  10:00",
    ),
]


@pytest.mark.django_db
@pytest.mark.parametrize(("model", "column"), TIMES)
def test_a_time_that_cannot_be_read_is_refused_in_every_column(model: Any, column: str) -> None:
    row = row_of(model, column)
    for moment in OUT_OF_RANGE if connection.vendor == "postgresql" else ODD:
        with pytest.raises(IntegrityError, match="_times"), transaction.atomic():
            write(model, row.pk, column, f"'{moment}'")
    for moment in ("1970-01-02 00:00:00", "2028-02-29 23:59:59.999999", "8999-12-31 00:00:00"):  # in any zone of the session
        write(model, row.pk, column, f"'{moment}'")


@pytest.mark.django_db
@pytest.mark.parametrize(("model", "column"), TIMES)
def test_a_time_that_no_constraint_has_checked_is_read_as_the_nearest(model: Any, column: str) -> None:
    row = row_of(model)
    with unchecked():
        for moment in OUT_OF_RANGE if connection.vendor == "postgresql" else ODD:
            write(model, row.pk, column, f"'{moment}'")
            read = getattr(model.objects.get(pk=row.pk), column)
            assert read.year in (1970, 9000)
            assert model.objects.values_list(column, flat=True).get(pk=row.pk) == read


@pytest.mark.django_db
@pytest.mark.parametrize("model", [model for model in MODELS if any(one is model for one, _ in TIMES)])
def test_the_check_of_an_instance_accepts_its_times_and_refuses_one_that_cannot_be_read(model: Any, caplog: Any) -> None:
    row = model.objects.get(pk=row_of(model).pk)
    row.validate_constraints()
    column = next(column for one, column in TIMES if one is model and getattr(row, column))
    setattr(row, column, datetime(9100, 1, 1, tzinfo=UTC))
    with pytest.raises(ValidationError, match="_times"):
        row.validate_constraints()
    assert caplog.text == ""  # Django logs a check that fails, and accepts the instance


@pytest.mark.django_db
def test_a_job_that_waits_for_its_time_has_one() -> None:
    job = JobFactory(scheduled=True)
    refuse(f"UPDATE jobqueue_job SET run_at = NULL WHERE id = {job.pk}", "jobqueue_job_status")


DIGITS = "9" * 5000
JUNK = {
    "digits": DIGITS,
    "digits inside": f'{{"a": [{DIGITS}]}}',
    "deep": "[" * 3000 + "]" * 3000,
    "deep objects": '{"a":' * 3000 + "1" + "}" * 3000,
    "too deep to walk": "[" * 400 + "]" * 400,
}
JSON = [(model, one.column) for model in MODELS for one in model._meta.fields if isinstance(one, models.JSONField)]


@pytest.mark.django_db
@pytest.mark.parametrize(("model", "column"), JSON)
def test_json_that_cannot_be_read_is_read_as_its_text_and_written_as_it_was(model: Any, column: str) -> None:
    row = row_of(model)
    for name, text in JUNK.items():
        with unchecked():
            write(model, row.pk, column, f"'{text}'")
        read = model.objects.get(pk=row.pk)
        value = getattr(read, column)
        assert isinstance(value, str), name
        assert value.replace(" ", "") == text.replace(" ", "")
        with unchecked():
            model.objects.filter(pk=row.pk).update(**{column: value})
        assert getattr(model.objects.get(pk=row.pk), column) == value


@pytest.mark.django_db
def test_json_that_no_other_database_takes_is_read_without_it() -> None:
    job = JobFactory()
    with unchecked():
        for text, value in {r'["\ud800 x"]': ["\N{REPLACEMENT CHARACTER} x"], r'["\ud83d\ude00"]': ["\U0001f600"]}.items():
            if connection.vendor == "sqlite":
                write(Job, job.pk, "args", f"'{text}'")
                assert Job.objects.get(pk=job.pk).args == value


@pytest.mark.django_db
def test_tokens_of_leases_begin_at_a_random_number() -> None:
    for _ in range(3):
        tasks.add.enqueue(1)
    enqueue_many(tasks.add, [((1,), {}), ((2,), {})])
    Job.objects.create(task="a.b")
    tokens = set(Job.objects.values_list("lease_token", flat=True))
    assert len(tokens) == 6
    assert all(0 <= token < 2**40 for token in tokens)
