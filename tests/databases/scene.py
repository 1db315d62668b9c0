"""Use every feature in a project whose jobs have a database of their own, and report which tables each connection used.

A process of its own: ``python -m tests.databases.scene`` with `tests.databases.settings`. Its last line is the report, as JSON.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import django
import pytest
from django.db.backends.signals import connection_created

TABLE = re.compile(r"\b(?:jobqueue|auth|django)_\w+\b(?!\()")  # no function
WRITES = re.compile(r"\b(?:INSERT|UPDATE|DELETE|FOR (?:NO KEY )?UPDATE|CREATE|ALTER)\b")

PRODUCT = Path(__file__).resolve().parents[2] / "jobqueue"

asked: dict[str, set[str]] = defaultdict(set)
written: dict[str, set[str]] = defaultdict(set)
readers: set[str] = set()  # the parts of the product that read from the copy
_pause = threading.Event()


def listen(connection: Any, **_: Any) -> None:
    """Write down what every connection is asked, from its beginning on; what threads and reserved connections are asked, too."""
    alias = connection.alias

    def note(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        tables = set(TABLE.findall(sql))
        asked[alias] |= tables
        if WRITES.search(sql.upper()):
            written[alias] |= tables
        if alias == "replica":
            places = [Path(frame.filename) for frame in traceback.extract_stack()]
            readers.update(place.relative_to(PRODUCT).parts[0] for place in places[::-1] if place.is_relative_to(PRODUCT))
        return execute(sql, params, many, context)

    if not any(getattr(wrapper, "__name__", "") == "note" for wrapper in connection.execute_wrappers):  # workers have wrappers, too
        connection.execute_wrappers.append(note)


def wait_until(condition: Callable[[], Any], what: str, seconds: float = 20.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"In {seconds} s it did not come about that {what}.")
        _pause.wait(0.05)
    return found


def number_of(job: Any) -> int:
    """Return the number of a job, or of the job of a result."""
    return int(getattr(job, "job_id", None) or job.pk)


def state(job: Any) -> str:
    from jobqueue.models import Job

    return str(Job.objects.current.values_list("status", flat=True).get(pk=number_of(job)))


def ended(*jobs: Any, status: str = "SUCCESS") -> None:
    for job in jobs:
        wait_until(lambda job=job: state(job) == status, f"job {number_of(job)} is {status} (it is {state(job)})")


def told(*words: str) -> str:
    """Run a management command and return what it said."""
    from django.core.management import call_command

    out = io.StringIO()
    call_command(*words, stdout=out, stderr=out)
    return out.getvalue()


# What the web process does


def enqueue_in_transactions() -> None:
    from django.db import transaction

    from jobqueue import pause_queue
    from jobqueue.models import Job
    from tests.databases.tasks import make_group

    pause_queue("nobody's")
    kept: Any = None
    with contextlib.suppress(ZeroDivisionError), transaction.atomic():
        kept = make_group.using(queue_name="nobody's").enqueue("kept")
        _ = 1 / 0
    assert Job.objects.current.filter(pk=kept.job_id).exists(), "a transaction of the main database does not undo the job"
    with contextlib.suppress(ZeroDivisionError), transaction.atomic(using="jobs"):
        undone = make_group.using(queue_name="nobody's").enqueue("undone")
        _ = 1 / 0
    assert not Job.objects.current.filter(pk=undone.job_id).exists(), "one of the jobs' database does"


def refuse_one_transaction() -> None:
    from jobqueue import InvalidOption, enqueue_many
    from jobqueue.models import Job
    from tests.databases.tasks import book

    for attempt in (lambda: book.enqueue("x"), lambda: enqueue_many(book, [(("x",), {})])):
        with pytest.raises(InvalidOption, match="'jobs'"):
            attempt()
    assert not Job.objects.current.filter(task__endswith="book").exists()


def checks_pass() -> None:
    assert "no issues" in told("check", "--database", "default", "--database", "jobs")


# What a worker does


@contextlib.contextmanager
def worker() -> Iterator[None]:
    """Run a worker in this process."""
    from jobqueue.worker.process.supervisor import Supervisor

    supervisor = Supervisor()
    thread = threading.Thread(target=supervisor.run)
    thread.start()
    try:
        yield
    finally:
        supervisor.stop()
        thread.join(20)
        assert not thread.is_alive(), "the worker ends"


def run_jobs() -> None:
    from django.contrib.auth.models import Group

    from jobqueue.models import Job
    from tests.databases.tasks import family, make_group, retried

    line = [make_group.using(target="line").enqueue(f"line {number}") for number in range(4)]
    others = [retried.enqueue(), family.enqueue(), make_group.using(unique_key="one").enqueue("unique")]
    ended(*line, *others)
    found = retried.get_result(others[0].id)
    assert found.return_value == "in the end"
    found.refresh()
    other = Job(task="tests.databases.tasks.book", args=["x"])
    other.save()  # as another program might insert it
    ended(other, status="ERROR")
    assert Group.objects.using("default").count() == 5


def stop_jobs() -> None:
    from datetime import timedelta

    from jobqueue import cancel, clear_target, limit_queue, pause, request_job_cancel, resume, run_now, why_waiting
    from tests.databases.tasks import child, wait

    job = wait.using(target="stopped").enqueue()
    wait_until(lambda: state(job) == "RUNNING", "it runs")
    pause(number_of(job))
    ended(job, status="PAUSED")
    resume(number_of(job))
    wait_until(lambda: state(job) == "RUNNING", "it runs again")
    behind = wait.using(target="stopped").enqueue()
    wait_until(lambda: str(number_of(job)) in str(why_waiting(behind.job_id)), "the reason of another job's wait is returned")
    request_job_cancel(number_of(job))
    ended(job, status="PAUSED")
    for one in (behind, job):
        cancel(one.job_id)
        ended(one, status="CANCELED")
    assert clear_target("stopped") is not None
    limit_queue("limited", 1)
    later = child.using(queue_name="limited", run_after=timedelta(hours=1)).enqueue()
    run_now(later.job_id)
    ended(later)


def schedule_jobs() -> None:
    from jobqueue import run_schedule_now
    from jobqueue.models import Job, Schedule
    from jobqueue.schedules import ticks

    ticks.create(Schedule(name="each second", task="tests.databases.tasks.child", interval_seconds=1))
    ticks.create(Schedule(name="nightly", task="tests.databases.tasks.child", cron="0 3 * * *"))
    run_schedule_now("nightly")
    jobs = Job.objects.current.filter(task="tests.databases.tasks.child", metadata__has_key="schedule", status="SUCCESS")
    wait_until(lambda: jobs.count() >= 3, "scheduled jobs end")
    Schedule.objects.current.update(enabled=False)


def send_webhooks() -> None:
    from jobqueue import set_queue_webhook
    from tests.databases.tasks import child
    from tests.webhooks.receivers import Receiver, says

    receiver = Receiver(says(500, 200))
    set_queue_webhook("told", receiver.url, events=["job.completed"])
    child.using(queue_name="told").enqueue()
    wait_until(lambda: receiver.requests, "a webhook comes")
    told("jobqueue", "webhooks")
    receiver.close()


def forget_jobs() -> None:
    from django.utils import timezone

    from jobqueue.duties.apply_retention import ApplyRetention
    from jobqueue.models import Job
    from tests.databases.tasks import child

    old = child.using(queue_name="short").enqueue()
    ended(old)
    duty = ApplyRetention()  # the worker's own one runs once a minute

    def is_gone() -> bool:
        duty.run_once(timezone.now())
        return not Job.objects.current.filter(pk=old.job_id).exists()

    wait_until(is_gone, "retention deletes it")


def use_commands() -> None:
    from tests.databases.tasks import child

    job = child.using(queue_name="commanded").enqueue()
    for words in (("status",), ("leaders",), ("schedules",), ("report", str(number_of(job))), ("pause", "q"), ("resume", "q"), ("health",)):
        with contextlib.suppress(SystemExit):  # health has its own opinion
            assert told("jobqueue", *words)
    told("jobqueue", "prune")


# What people do


def use_the_admin() -> None:
    from django.contrib.admin.models import LogEntry

    from jobqueue.models import Job, Queue, Schedule, WebhookDelivery, Worker
    from tests.databases.tasks import wait

    client = person()
    job = wait.using(queue_name="nobody's", target="seen").enqueue()
    for model in ("job", "queue", "schedule", "worker", "backgroundjoblease", "webhookdelivery"):
        page = client.get(f"/admin/jobqueue/{model}/")
        assert page.status_code == 200, model
    assert client.get("/admin/jobqueue/job/targets/").status_code == 200
    seen = Job.objects.filter(pk=number_of(job)).exists()  # a copy that lags shows people less
    assert client.get(f"/admin/jobqueue/job/{number_of(job)}/change/").status_code == (200 if seen else 302)
    for rows, name in ((Schedule, "schedule"), (Queue, "queue"), (Worker, "worker"), (WebhookDelivery, "webhookdelivery")):
        for row in rows.objects.all()[:1]:
            assert client.get(f"/admin/jobqueue/{name}/{row.pk}/change/").status_code in (200, 302), name
    answer = client.post(f"/admin/jobqueue/job/{number_of(job)}/act/pause/")
    assert answer.status_code in (302, 404), answer.status_code
    if seen:
        assert state(job) == "PAUSED"
        chosen = {"action": "cancel_jobs", "_selected_action": [number_of(job)]}
        client.post("/admin/jobqueue/job/", chosen)
        client.post("/admin/jobqueue/queue/decide/pause/", {"queue": "decided"})
        form = {"name": "by hand", "task": "tests.databases.tasks.child", "args": "[]", "kwargs": "{}", "enabled": "on"}
        form |= {"cron": "0 3 * * *", "time_zone": "UTC", "missed": "once", "missed_limit": "100"}
        assert client.post("/admin/jobqueue/schedule/add/", form).status_code == 302
        assert Schedule.objects.current.filter(name="by hand").exists()
        client.post("/admin/jobqueue/job/", {"action": "delete_selected", "_selected_action": [number_of(job)], "post": "yes"})
        assert LogEntry.objects.using("default").exists()


def use_the_api() -> None:
    from jobqueue.models import Job
    from tests.databases.tasks import wait

    client, job = person(), wait.using(queue_name="nobody's", target="asked").enqueue()
    for place in ("openapi.json", f"jobs/{number_of(job)}/", "targets/", "queues/"):
        answer = client.get(f"/jobqueue/{place}")
        assert answer.status_code == 200, (place, answer.content)
    stream = client.get(f"/jobqueue/jobs/{number_of(job)}/events/?snapshot=1")
    assert stream.status_code == 200
    assert next(iter(stream.streaming_content))
    stream.close()
    for verb in ("pause", "resume", "cancel"):
        answer = client.post(f"/jobqueue/jobs/{number_of(job)}/{verb}/")
        assert answer.status_code in (200, 202), answer.content
    assert state(job) == "CANCELED"
    assert client.delete(f"/jobqueue/jobs/{number_of(job)}/").status_code == 200
    assert not Job.objects.current.filter(pk=number_of(job)).exists()
    assert client.post("/jobqueue/queues/asked/pause/").status_code == 200


def person() -> Any:
    """Return the client of a user with all permissions."""
    from django.contrib.auth import get_user_model
    from django.test import Client

    users = get_user_model().objects
    client = Client()
    client.force_login(users.filter(username="boss").first() or users.create_superuser("boss"))
    return client


BEFORE = (enqueue_in_transactions, refuse_one_transaction, checks_pass)
INSIDE = (run_jobs, stop_jobs, schedule_jobs, send_webhooks, forget_jobs, use_commands, use_the_admin, use_the_api)


def main() -> None:
    """Play everything and print the report."""
    connection_created.connect(listen)
    django.setup()
    from django.conf import settings
    from django.core.management import call_command
    from django.db import connections

    for alias in settings.DATABASES:
        call_command("migrate", database=alias, verbosity=0)
    tables = {alias: connections[alias].introspection.table_names() for alias in settings.DATABASES}
    for seen in (asked, written, readers):
        seen.clear()
    failed: dict[str, str] = {}

    def play(step: Callable[[], None]) -> None:
        try:
            step()
        except BaseException:  # noqa: BLE001 - it is in the report
            failed[step.__name__] = traceback.format_exc()

    for step in BEFORE:
        play(step)
    with worker():
        for step in INSIDE:
            play(step)
    report = {"failed": failed, "tables": tables, "readers": sorted(readers)}
    for name, seen in (("asked", asked), ("written", written)):
        report[name] = {alias: sorted(found) for alias, found in seen.items()}
    sys.stdout.write("\n" + json.dumps(report) + "\n")


if __name__ == "__main__":
    main()
