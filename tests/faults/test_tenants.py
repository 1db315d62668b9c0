"""Tenants in schemas of their own, with the database backend and the context of django-tenants, on real workers."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection

from jobqueue import enqueue_many, pause
from tests.faults import tasks
from tests.faults.harness import WorkerProcess, Workers, database_entry, job_id, row, wait_for, wait_until

pytest.importorskip("django_tenants", reason="needs the package django-tenants")
# The search path that django-tenants sets belongs to a session.
pytestmark = [pytest.mark.faults, pytest.mark.django_db, pytest.mark.postgresql, pytest.mark.session]

SCHEMAS = ("acme", "globex")
CONTEXT = "django_tenants.utils.schema_context"


@pytest.fixture
def schemas(transactional_db: None) -> Iterator[None]:
    """Make two schemas with a table of notes in each, and one in public."""
    with connection.cursor() as cursor:
        for name in SCHEMAS:
            cursor.execute(f"CREATE SCHEMA {name}")
            cursor.execute(f"CREATE TABLE {name}.note (job bigint)")
        cursor.execute("CREATE TABLE public.note (job bigint)")
    yield
    with connection.cursor() as cursor:
        for name in SCHEMAS:
            cursor.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")
        cursor.execute("DROP TABLE public.note")


def start(workers: Workers, **settings: Any) -> WorkerProcess:
    database = {**database_entry(), "ENGINE": "django_tenants.postgresql_backend"}
    return workers.start(database=database, TENANT_CONTEXT=CONTEXT, **settings).ready()


def notes(schema: str) -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT job FROM {schema}.note ORDER BY job")
        return [found[0] for found in cursor.fetchall()]


def test_a_job_runs_in_the_schema_of_its_tenant_and_leaves_the_thread_in_public(schemas: None, workers: Workers) -> None:
    plain = {name: workers.enqueue(tasks.note, tenant=name) for name in SCHEMAS}
    coroutines = {name: workers.enqueue(tasks.anote, tenant=name) for name in SCHEMAS}
    nobody = workers.enqueue(tasks.note)
    worker = start(workers, MIN_WORKERS=1, MAX_WORKERS=1)
    for name in SCHEMAS:
        assert (wait_for(plain[name], "SUCCESS").result, wait_for(coroutines[name], "SUCCESS").result) == (name, name)
    assert wait_for(nobody, "SUCCESS").result == "public"
    endless = workers.enqueue(tasks.note, 60, tenant="acme")
    wait_until(lambda: workers.witness.count("start", job_id(endless)), "the endless job runs")
    pause(job_id(endless))
    wait_for(endless, "PAUSED")
    after = workers.enqueue(tasks.schema)
    assert wait_for(after, "SUCCESS").result == "public"
    assert notes("globex") == sorted(job_id(one["globex"]) for one in (plain, coroutines))
    assert notes("acme") == sorted([*(job_id(one["acme"]) for one in (plain, coroutines)), job_id(endless)])
    assert notes("public") == [job_id(nobody)]
    assert worker.stop() == 0


@pytest.mark.parametrize("task", [tasks.note, tasks.anote])
def test_a_tenant_that_is_gone_gives_a_clear_error_and_harms_no_other(schemas: None, workers: Workers, task: Any) -> None:
    lost, good = workers.enqueue(task, tenant="acme"), workers.enqueue(task, tenant="globex")
    with connection.cursor() as cursor:
        cursor.execute("DROP SCHEMA acme CASCADE")
    worker = start(workers)
    assert wait_for(good, "SUCCESS").result == "globex"
    failed = wait_for(lost, "ERROR")
    assert "Tenant 'acme' has no schema 'acme', so its job cannot run." in failed.message
    assert failed.history[-1]["exception"] == "jobqueue.exceptions.TenantContextFailed"
    assert (notes("public"), notes("globex")) == ([], [job_id(good)])
    assert worker.stop() == 0


def test_a_flood_of_one_tenant_takes_no_slot_of_another(schemas: None, workers: Workers) -> None:
    enqueue_many(tasks.note.using(tenant="acme"), [((0.05,), {})] * 10_000)
    worker = start(workers, MIN_WORKERS=4, MAX_WORKERS=4, TENANTS={"globex": 2})
    wait_until(lambda: len(notes("acme")) > 20, "the flood runs")
    waits = []
    pace = threading.Event()
    for _ in range(40):
        pace.wait(0.05)
        enqueued_at = time.monotonic()
        job = workers.enqueue(tasks.note, tenant="globex")
        wait_until(lambda job=job: workers.witness.count("end", job_id(job)), "the other tenant's job has its turn")
        started = next(event.at for event in workers.witness.events if event.job == job_id(job) and event.what == "start")
        waits.append(started - enqueued_at)
    assert workers.jobs.filter(tenant="acme", status="QUEUED").count() > 5_000, "the flood was there all the time"
    waits.sort()
    print(json.dumps({"p50": waits[20], "p95": waits[37], "most": waits[-1]}))  # noqa: T201 - shown with -s
    assert waits[37] < 1.0, "it waits for nothing of the flood, which takes minutes (measured: docs/benchmarks.md)"
    worker.hurry()
    assert worker.wait() == 0
    assert row(job).status == "SUCCESS"
