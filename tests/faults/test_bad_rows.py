"""Bad rows of every kind: good jobs beside them end as usual and as soon, each bad row is reported, and no page fails.

The usual run tests a sample: a constant part, and a part that changes each day. BAD_ROWS_SEED=20261129 repeats that of
a day. ``make test-rows`` tries all: BAD_ROWS=all.
"""

from __future__ import annotations

import io
import logging
import os
import random
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command
from django.db import connection, models
from django.test import Client
from django.urls import reverse

from jobqueue import enqueue_many
from jobqueue.core.states import Status
from jobqueue.db.aside import PREFIX
from jobqueue.insight.problems import problems
from jobqueue.lifecycle.queues import limit_queue
from jobqueue.models import Job, JobPhase, Schedule, WebhookDelivery
from tests import tasks
from tests.factories import JobFactory, ScheduleFactory
from tests.faults.bad_rows import Bad, batches, every, make
from tests.pipelines.samples import publish_with_summary
from tests.unchecked import MODELS, unchecked, write
from tests.worker.whole import ended, until, working

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.session]

ALL = os.environ.get("BAD_ROWS") == "all"
SIZE = 50
LATER_SECONDS = 5.0
SEED = 20261129
ROTATION = int(os.environ.get("BAD_ROWS_SEED") or f"{datetime.now(UTC):%Y%m%d}")
LISTS = ("job", "worker", "queue", "schedule", "webhookdelivery", "backgroundjoblease")


def chosen() -> list[list[Bad]]:
    """Return the batches to try: all of them, or two of many rows, one of them of the day, and some of one row."""
    cases = every()
    if ALL:
        return list(batches(cases, SIZE))
    random.Random(SEED).shuffle(cases)
    fixed, rest = cases[: SIZE + 2], cases[SIZE + 2 :]
    return [fixed[:SIZE], random.Random(ROTATION).sample(rest, SIZE), *([one] for one in fixed[SIZE:])]


@pytest.fixture
def dropped(transactional_db: Any) -> Iterator[None]:
    """Drop the constraints of PostgreSQL for the test; on SQLite only this connection does without them, so workers meet them."""
    with unchecked():
        yield
    with connection.schema_editor() as editor:
        for model in MODELS:
            editor.execute(f"DELETE FROM {model._meta.db_table}")
        if connection.vendor == "postgresql":
            editor.execute("SET CONSTRAINTS ALL IMMEDIATE")
            for model in MODELS:
                for one in (one for one in model._meta.constraints if isinstance(one, models.CheckConstraint)):
                    editor.add_constraint(model, one)


def good() -> dict[str, list[int]]:
    """Make jobs of every kind, and return their ids."""
    limit_queue("limited", 1)
    ScheduleFactory(name="good", next_at=None, cron="", interval_seconds=1)
    return {
        "plain": [one.job_id for one in enqueue_many(tasks.add, [((1,), {})] * 20)],
        "target": [tasks.add.using(target="good").enqueue(1).job_id for _ in range(3)],
        "limited": [tasks.add.using(queue_name="limited").enqueue(1).job_id for _ in range(3)],
        "failing": [tasks.fail.enqueue().job_id for _ in range(3)],
        "delayed": [tasks.add.using(run_after=_seconds(1)).enqueue(1).job_id],
        "lost": [job.pk for job in JobFactory.create_batch(3, expired=True)],
        "pipeline": [publish_with_summary.enqueue("x").job_id],
        "webhook": [tasks.add.using(webhook_url="http://127.0.0.1:9/hook").enqueue(1).job_id],
    }


def _seconds(seconds: float) -> Any:
    from datetime import timedelta

    return timedelta(seconds=seconds)


ENDS = {"failing": "ERROR"}


def run(made: dict[str, list[int]]) -> float:
    """Run a worker until the good jobs have ended; return after how many seconds they had."""
    ids = [job_id for some in made.values() for job_id in some]
    began = time.monotonic()
    with working():
        until(lambda: not Job.objects.filter(pk__in=ids).exclude(status__in=["SUCCESS", "ERROR"]).exists(), "the good jobs end", 40)
        until(lambda: Schedule.objects.filter(name="good", last_job_id__isnull=False).exists(), "the good schedule is due", 20)
        sent = WebhookDelivery.objects.filter(job__in=made["webhook"], attempts__gt=0)
        until(sent.exists, "the good webhook is attempted", 20)
        return time.monotonic() - began


def check_good(made: dict[str, list[int]]) -> None:
    for kind, ids in made.items():
        found = {job.pk: (job.status, job.message) for job in Job.objects.filter(pk__in=ids)}
        assert {status for status, _ in found.values()} == {ENDS.get(kind, "SUCCESS")}, (kind, found)
        assert len(found) == len(ids)
    assert not Job.objects.filter(pk__in=[*made["plain"], *made["target"], *made["limited"]], attempt__gt=1).exists(), "each ran once"
    assert WebhookDelivery.objects.filter(job__in=made["webhook"], attempts__gt=0).exists()


def check_bad(rows: list[tuple[Bad, Any]]) -> None:
    """Check that each bad job has ended, waits as its row says, or has the reason why it was set aside."""
    named = {problem.code for problem in problems()}
    for bad, row in rows:
        job = Job.objects.filter(pk=row.pk).first() if isinstance(row, Job) else None
        if job is not None and job.status not in Status.values:
            assert "unknown_states" in named, bad.name
        if job is None or bad.column in ("status", "waiting_for"):
            continue
        assert job.status != "RUNNING", f"{bad.name}: {job.status}"
        assert job.message or job.status != "ERROR" or bad.column == "message" or bad.traits.get("error"), f"{bad.name}: no reason"
        if job.message.startswith(PREFIX):
            assert "set_aside_jobs" in named, bad.name


def check_pages(rows: list[tuple[Bad, Any]], client: Client) -> None:
    """Open every page, address and command that shows these rows."""
    wrong = []
    addresses = [(reverse(f"admin:jobqueue_{name}_changelist"), "lists") for name in LISTS]
    addresses += [("/admin/jobqueue/", "overview"), (reverse("admin:jobqueue_job_tasks"), "tasks")]
    addresses += [(reverse("admin:jobqueue_queue_change", args=["default"]), "queue")]
    addresses += [(reverse("admin:jobqueue_job_targets"), "targets"), ("/jobqueue/queues/", "queues"), ("/jobqueue/targets/", "targets")]
    for bad, row in rows:
        job_id = row.pk if isinstance(row, Job) else getattr(row, "job_id", getattr(row, "parent_id", None))
        if job_id is not None:
            addresses += [(reverse("admin:jobqueue_job_change", args=[job_id]), bad.name), (f"/jobqueue/jobs/{job_id}/", bad.name)]
            wrong += _command("report", str(job_id), name=bad.name)
        if (name := row._meta.model_name) in LISTS and name != "job":
            addresses.append((reverse(f"admin:jobqueue_{name}_change", args=[row.pk]), bad.name))
    for address, name in addresses:
        response = client.get(address)
        if response.status_code >= 500:
            wrong.append(f"{name}: {address}: {response.status_code}: {getattr(response, 'exc_info', [None, None])[1]!r}")
    for what in ("status", "schedules", "leaders", "health", "webhooks"):
        wrong += _command(what, name="all")
        wrong += _command(what, "--json", name="all")
    assert not wrong, "\n".join(wrong)


def _command(*args: str, name: str) -> list[str]:
    try:
        call_command("jobqueue", *args, stdout=io.StringIO(), stderr=io.StringIO())
    except (SystemExit, CommandError) as error:
        return [f"{name}: {args}: {error}"] if isinstance(error, CommandError) and "no job" not in str(error) else []
    except Exception as error:  # noqa: BLE001 - the test collects all other errors
        return [f"{name}: {args}: {error!r}"]
    return []


@pytest.fixture
def client() -> Client:
    made = Client(raise_request_exception=False)
    made.force_login(get_user_model().objects.create_superuser("root"))
    return made


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.parametrize("number", range(len(chosen())))
def test_good_jobs_end_as_without_bad_rows_and_every_page_shows_them(
    number: int, dropped: None, client: Client, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    batch = chosen()[number]
    print(f"batch {number}, BAD_ROWS_SEED={ROTATION}: {[bad.name for bad in batch]}")  # noqa: T201 - shown if it fails
    caplog.set_level(logging.CRITICAL, "django.request")
    rows = [(bad, row) for place, bad in enumerate(batch) if (row := make(bad, place)) is not None]
    check_pages(rows, client)
    made = good()
    seconds = run(made)
    check_good(made)
    check_bad(rows)
    check_pages(rows, client)
    print(f"batch {number}: {len(rows)} of {len(batch)} rows, good jobs ended after {seconds:.1f} s")  # noqa: T201
    assert seconds < 6.0 + LATER_SECONDS, f"the good jobs ended after {seconds:.1f} s"
    assert JobPhase.objects.filter(job__in=made["pipeline"]).exists()


@pytest.mark.faults
def test_a_lost_job_whose_row_takes_no_change_keeps_no_other_lost_job_from_its_run(dropped: None) -> None:
    bad, *good = JobFactory.create_batch(4, crashes=1, task="tests.tasks.add", args=[1])
    write(Job, bad.pk, "progress", "200")
    if connection.vendor == "postgresql":  # on SQLite, the workers' connections check what this one does not
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE jobqueue_job ADD CONSTRAINT again CHECK (progress <= 100) NOT VALID")
    try:
        with working():
            assert ended(bad, *good) == ["ERROR", "SUCCESS", "SUCCESS", "SUCCESS"]
    finally:
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("ALTER TABLE jobqueue_job DROP CONSTRAINT again")
    bad.refresh_from_db()
    assert bad.message
