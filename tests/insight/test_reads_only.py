"""Nothing in `insight` writes: each of its functions runs in a transaction in which the database refuses to write."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import pkgutil
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import DatabaseError, connection, transaction

from jobqueue import clock, insight
from jobqueue.access.hiding import mask_of
from jobqueue.db import overview
from jobqueue.insight.problems.base import Problem, Severity, Thresholds
from jobqueue.insight.search import parsed
from jobqueue.insight.why_facts import Facts
from jobqueue.models import AuditRecord, BackgroundJobLease, Job, JobDependency, JobLog, JobPhase, Queue, Sample, WebhookDelivery
from tests.factories import DeliveryFactory, JobFactory, ScheduleFactory, WorkerFactory

pytestmark = pytest.mark.django_db

READ_ONLY = "SET LOCAL transaction_read_only = on"


def public_functions() -> dict[str, Callable[..., Any]]:
    """Return the public functions of `insight` by the name of their module and their own name."""
    found = {}
    for module in pkgutil.walk_packages(insight.__path__, f"{insight.__name__}."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if inspect.isfunction(value) and value.__module__ == module.name and not name.startswith("_"):
                found[f"{module.name.removeprefix(f'{insight.__name__}.')}.{name}"] = value
    return found


@contextlib.contextmanager
def refusing_writes() -> Iterator[None]:
    """Run a block in which the database refuses all writes."""
    on, off = ("PRAGMA query_only = ON", "PRAGMA query_only = OFF") if connection.vendor == "sqlite" else (READ_ONLY, "SELECT 1")
    try:
        with transaction.atomic():
            connection.cursor().execute(on)
            yield
            transaction.set_rollback(True)  # with the setting of PostgreSQL
    finally:
        connection.cursor().execute(off)


@pytest.fixture
def scene() -> dict[str, Any]:
    """Make rows of each kind, and return an argument for each name of a parameter."""
    now = clock.now()
    failed = JobFactory(error=True, target="customer:7", holds_target=True, queue="mail", history=[{"attempt": 1, "outcome": "ERROR"}])
    waiting = JobFactory(waiting_for_target=True)
    parent = JobFactory(waiting_for_children=True, phase="second")
    JobDependency.objects.create(parent=parent, child=JobFactory())
    JobPhase.objects.create(job=parent, position=0, name="first")
    worker = WorkerFactory(
        queues=["mail"], services={"finisher": [900.0, 900.0, 3]}, failed_modules={"shop.tasks": "ImportError: no"}, stuck=1
    )
    for traits in (
        {"running": True, "lease_owner": str(worker.pk)},
        {"scheduled": True},
        {"expired": True},
        {"paused": True},
        {"success": True},
    ):
        JobFactory(**traits)
    JobLog.objects.create(job=waiting, attempt=1, first=1, last=1, level=20, lines='[[0, 20, "shop", "text"]]')
    Queue.objects.create(name="mail", paused=True, max_running=1)
    Sample.objects.create(kind="queue", name="mail", seconds=10, slot=1, begins=int(now.timestamp()))
    ScheduleFactory(retry_at=now, last_error="no")
    for traits in ({}, {"failed": True}, {"delivered": True}):
        DeliveryFactory(**traits)
    WebhookDelivery.objects.filter(status="PENDING").update(attempts=1, error="no")
    lease = {"held_by_worker_id": str(worker.pk), "lease_acquired_at": now, "heartbeat_at": now - timedelta(hours=1)}
    row = BackgroundJobLease.objects.create(job_name="promote_due_jobs", **lease)
    [head] = overview.target_heads(Job.objects.database, [waiting.tenant_target])
    job = Job.objects.get(pk=waiting.pk)
    job.now = now  # type: ignore[attr-defined]
    return {
        "job": job,
        "jobs": {failed.pk: failed},
        "head": head,
        "worker": worker,
        "facts": Facts([job]),
        "record": AuditRecord.objects.create(actor="operator x", verb="cancel", object="job 7"),
        "row": row,
        "name": "mail",
        "exception": "builtins.ValueError",
        "message": "no",
        "mask": mask_of(job),
        "user": get_user_model().objects.create_user("viewer"),
        "queue": "mail",
        "worker_ids": [str(worker.pk)],
        "workers": [worker],
        "ids": [waiting.pk],
        "ending": None,
        "now": now,
        "when": now,
        "begin": now,
        "end": now,
        "kind": "queue",
        "most": 10,
        "delta": timedelta(seconds=90),
        "number": 2.0,
        "slots": 2,
        "running": 1,
        "where": "here",
        "interval_seconds": 10.0,
        "text": now.isoformat(),
        "entry": {},
        "runs": [],
        "waits": [],
        "problems": [],
        "families": [],
        "shown": str,
        "given": Thresholds(),
        "threshold": 1.0,
        "period": "24h",
        "loads": [],
        "filters": {"queue": "mail"},
    }


SEARCH = {
    "before": 10,
    "search": parsed("a=7 release:r1"),
    "jobs": Job.objects.all(),
    "limit": 2,
    "text": "a=7",
    "target": "t",
    "tenant": None,
}
SEARCHES = (
    "parsed",
    "tasks_like",
    "condition",
    "matches",
    "page",
    "in_line",
    "found_by_index",
    "newest_matching",
    "older_open",
    "first_matching",
)
KINDS = {"jobs": Job.objects.all(), "key": "0123456789abcdef", "keys": ["0123456789abcdef"]}
OTHERS: dict[str, dict[str, Any]] = {
    **{f"error_kinds.{name}": KINDS for name in ("error_kinds_of", "kind_runs", "blocked_lines", "last_errors_of")},
    "arguments.with_small_arguments": KINDS,
    **{f"arguments.{name}": {"jobs": [Job(args=[], kwargs={}, metadata={})]} for name in ("frequent", "brief", "masked_arguments")},
    "problems.base.within": {"seconds": 7200.0},
    "problems.base.masked": {"problem": Problem("long_wait", Severity.ERROR, "text", "fix")},
    **{f"search.{name}": SEARCH for name in SEARCHES},
    "index_orders.index_order": SEARCH,
}


@pytest.mark.parametrize("name", public_functions())
def test_a_function_of_insight_only_reads(name: str, scene: dict[str, Any]) -> None:
    function = public_functions()[name]
    given = {**scene, **OTHERS.get(name, {})}
    wanted = [one.name for one in inspect.signature(function).parameters.values() if one.default is one.empty]
    with refusing_writes():
        result = function(**{one: given[one] for one in wanted})
        if isinstance(result, Iterator):
            list(result)


def test_every_problem_is_found_without_a_write(scene: dict[str, Any]) -> None:
    with refusing_writes():
        assert len({one.code for one in importlib.import_module("jobqueue.insight.problems").problems()}) > 5


def test_these_transactions_refuse_a_write(scene: dict[str, Any]) -> None:
    writes = [lambda: Job.objects.update(message="x"), lambda: Job.objects.create(task=f"a.{uuid.uuid4().hex}"), Queue.objects.all().delete]
    for write in writes:
        with refusing_writes(), pytest.raises(DatabaseError):
            write()
    assert Queue.objects.exists()
