"""Marks in all columns that can hold a secret, and a walk over everything that shows them: none is seen."""

from __future__ import annotations

import contextlib
import gc
import io
import json
import logging
import re
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse

from jobqueue import clock
from jobqueue.access import audit
from jobqueue.admin.verbs import VERBS
from jobqueue.api.endpoints import ENDPOINTS
from jobqueue.events import stream as streams
from jobqueue.events.stream import hub
from jobqueue.lifecycle.workers import record_left
from jobqueue.management.commands.jobqueue import SUBCOMMANDS
from jobqueue.models import BackgroundJobLease, Job, JobEvent, JobLog, JobPhase, LeftWorker, Queue, Schedule, WebhookDelivery, Worker
from jobqueue.testing import run_until_idle
from jobqueue.webhooks.outbox import body_of
from tests import tasks
from tests.factories import DeliveryFactory, JobFactory, ScheduleFactory, WorkerFactory
from tests.faults.harness import wait_until

pytestmark = pytest.mark.django_db
MARK = "MARKq7zX9"
VALUE = f"value-{MARK}"
URL = f"https://hooks.example/services/{MARK}?sig={MARK}#{MARK}"
# Each form as a text that a task, a library or a person can have written; the last ones were cut by other programs.
FORMS = [
    f"password={MARK}",
    f"--password={MARK}",
    f"-token {MARK}",
    f"['x', '--secret', '{MARK}']",
    f"Authorization: Bearer {MARK}",
    f"Cookie: a=1; sid={MARK}",
    f'{{\\"token\\": \\"{MARK}\\"}}',
    f"postgres://app:{MARK}@db/x",
    f"cannot reach postgres://app:{MARK}",
    f"the start … https://bob:{MARK}… [cut, 900 bytes]",
    f"password='{MARK} and more",
]
TEXT = "\n".join(FORMS)
SECRET_QUEUE = f"token={MARK}"
CODENAMES = (
    "view_job",
    "view_worker",
    "view_queue",
    "view_schedule",
    "view_webhookdelivery",
    "view_backgroundjoblease",
    "view_auditrecord",
)
QUEUE_CODENAMES = ("pause_queue", "resume_queue", "change_queue", "delete_queue", "set_webhook_queue")
OTHER_CODENAMES = ("view_job_log", "requeue_job")
VERB_CODENAMES = tuple(f"{verb}_job" for verb in VERBS)


@pytest.fixture
def client(db: None) -> Client:
    user = get_user_model().objects.create_user("viewer", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=(*CODENAMES, *QUEUE_CODENAMES, *VERB_CODENAMES, *OTHER_CODENAMES)))
    made = Client()
    made.force_login(user)
    return made


@pytest.fixture
def job(db: None) -> Job:
    """Plant marks under secret names, and the value of one of them bare, in all columns of all models."""
    secrets = {"password": VALUE, "nested": [{"api_key": MARK, "url": f"https://u:{MARK}@h/"}], "argv": ["x", "--token", MARK]}
    entry = {"attempt": 1, "worker": "w", "outcome": "ERROR", "exception": "ValueError", "message": f"{TEXT}\n{VALUE}", "traceback": TEXT}
    job: Job = JobFactory(
        error=True,
        task="tests.tasks.never_scheduled",
        args=[MARK, MARK],  # secret by the task's option, and by the parameter's name
        kwargs=secrets,
        metadata={"session_id": MARK, "more": {"cookie": MARK}},
        options={"pin": MARK},
        result={"token": MARK, "text": TEXT},
        message=f"{TEXT}",
        target=f"token={MARK}",
        unique_key=f"password={MARK}",
        phase=f"token={MARK}",
        webhook_url=URL,
        history=[{**entry, "started_at": "2026-01-01T00:00:00+00:00", "finished_at": TEXT}, TEXT],
        holds_target=True,
    )
    for name in ("job.failed", "job.progress"):
        JobEvent.objects.create(
            job=job, name=name, target=job.target, data={"message": TEXT, "token": MARK, "exception": "builtins.ValueError"}
        )
    JobPhase.objects.create(job=job, name=f"token={MARK}", position=0, message=TEXT, result={"token": MARK}, checkpoint={"token": MARK})
    lines = [[0, 20, f"token={MARK}", TEXT], [1, 40, "shop", VALUE]]
    JobLog.objects.create(job=job, attempt=1, first=1, last=2, level=40, lines=json.dumps(lines))
    JobLog.objects.create(job=job, attempt=1, first=3, last=3, level=40, lines=TEXT)
    DeliveryFactory(
        job=job,
        failed=True,
        url=URL,
        error=TEXT,
        history=[{"error": TEXT, "excerpt": TEXT, "url": URL}],
        facts={"message": TEXT, "token": MARK},
        body=json.dumps({"message": TEXT}),
    )
    DeliveryFactory(job=job, url=URL, error=TEXT, facts={"message": TEXT, "token": MARK})
    schedule = {"task": "tests.tasks.never_scheduled", "args": [MARK], "kwargs": secrets, "target": f"token={MARK}"}
    ScheduleFactory(name="marked", source="code", last_error="", **schedule)
    Queue.objects.create(name="default", webhook_url=URL)
    Queue.objects.create(name=SECRET_QUEUE, paused=True)
    ScheduleFactory(name=f"token={MARK}", source="code", last_error=TEXT, retry_at=clock.now())
    ScheduleFactory(name="twice", source="code", conflict=f"by {TEXT}")
    audit.record(f"operator x token={MARK}", "pause", Queue(name=SECRET_QUEUE), audit.DONE, text=TEXT)
    worker = WorkerFactory(stuck_runs=[{"job": job.pk, "line": FORMS[0]}])
    record_left([worker.pk], LeftWorker.How.KILLED, TEXT)
    WorkerFactory(host="web-1", pid=7, stuck_runs=[{"job": job.pk, "line": FORMS[0]}])
    WorkerFactory(failed_modules={"shop.tasks": f"OSError: {FORMS[0]}"}, queues=["other"])
    BackgroundJobLease.objects.create(job_name="mine", metadata={"last_error": TEXT, "failures_in_a_row": 5})
    JobFactory(waiting_for_target=True, target=job.target)
    JobFactory(queue=SECRET_QUEUE, tenant=f"token={MARK}", target="customer:7", webhook_url=f"token={MARK}")
    JobFactory(queue=SECRET_QUEUE, tenant=f"token={MARK}", target="customer:7", error=True, holds_target=True)
    return job


def clean(text: str | bytes, where: object) -> None:
    shown = text if isinstance(text, str) else text.decode("utf-8", "replace")
    at = shown.find(MARK)
    assert at < 0, f"{where}: {shown[max(at - 200, 0) : at + 100]}"


def pages(job: Job) -> list[str]:
    found = [reverse("admin:jobqueue_job_targets"), reverse("admin:index"), "/admin/jobqueue/"]
    for model in (Job, Queue, Schedule, WebhookDelivery, Worker, BackgroundJobLease):
        name = model._meta.model_name
        found.append(reverse(f"admin:jobqueue_{name}_changelist"))
        found += [reverse(f"admin:jobqueue_{name}_{page}", args=[row.pk]) for row in model.objects.all() for page in ("change", "history")]
    return found


@pytest.mark.long
def test_no_page_or_filter_of_the_admin_shows_a_mark(client: Client, job: Job) -> None:
    for page in pages(job):
        answer = client.get(page, follow=True)
        assert answer.status_code == 200, page
        clean(answer.content, page)
    for model, ours in admin.site._registry.items():
        if model._meta.app_label == "jobqueue":
            for one in ours.list_filter:
                page = reverse(f"admin:jobqueue_{model._meta.model_name}_changelist")
                name = f"{one[0]}__gte" if isinstance(one, tuple) else one.parameter_name
                clean(client.get(page, {name: "ERROR"}, follow=True).content, (page, name))
    clean(client.get(reverse("admin:jobqueue_job_change", args=[job.pk]), headers={"X-Jobqueue-Part": "1"}).content, "the live part")


@pytest.mark.long
def test_no_answer_of_a_button_shows_a_mark(client: Client, job: Job) -> None:
    JobFactory(target="", unique_key=job.unique_key)
    for verb in VERBS:
        clean(client.post(reverse("admin:jobqueue_job_act", args=[job.pk, verb]), follow=True).content, verb)
        clean(
            client.post(reverse("admin:jobqueue_job_changelist"), {"action": verb, "_selected_action": [job.pk]}, follow=True).content, verb
        )


def test_no_change_of_a_queue_with_a_secret_name_shows_its_name(client: Client, job: Job) -> None:
    """The name is not in the message, nor in the user's recent actions, which the admin's index shows with a link."""
    for what in ("resume", "pause", "limit", "forget"):
        page = reverse("admin:jobqueue_queue_decide", args=[what])
        clean(client.post(page, {"queue": SECRET_QUEUE, "max_running": "3"}, follow=True).content, what)
    page = reverse("admin:jobqueue_queue_webhook")
    clean(client.get(page, {"queue": SECRET_QUEUE}, follow=True).content, "the form of the webhook")
    clean(client.post(page, {"queue": SECRET_QUEUE, "url": "https://example.com/x"}, follow=True).content, "the saved webhook")
    assert not Queue.objects.get(pk=SECRET_QUEUE).webhook_url
    shown = client.get(reverse("admin:index")).content
    assert b"Recent actions" in shown
    assert b"token=********" in shown
    clean(shown, "the index")


@pytest.mark.long
def test_no_address_of_rest_shows_a_mark(client: Client, job: Job) -> None:
    JobFactory(target="", unique_key=job.unique_key)
    for endpoint in sorted(ENDPOINTS, key=lambda one: one.method == "DELETE"):
        if not endpoint.streams:
            named = {"job_id": job.pk, "target": "x", "queue": "default", "task": "shop.tasks.add", "bulk_id": 1, "worker": "web-1:7"}
            named |= {"schedule": "twice", "delivery": WebhookDelivery.objects.values_list("pk", flat=True).first() or 1}
            path = endpoint.path.format(**named)
            clean(client.generic(endpoint.method, f"/jobqueue/{path}").content, path)


def opened(client: Client, path: str, headers: dict[str, str]) -> Any:
    """Open a stream; one that was closed a moment ago may still count."""
    answers: list[Any] = []

    def is_open() -> bool:
        answers.append(client.get(path, headers=headers))
        clean(b"" if answers[-1].streaming else answers[-1].content, path)
        return bool(answers[-1].status_code == 200)

    wait_until(is_open, f"a stream of {path}")
    return answers[-1]


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
def test_no_stream_shows_a_mark(client: Client, job: Job, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(streams, "IDLE_POLL_SECONDS", 0.02)
    settings.JOBQUEUE = {"EVENT_PING_SECONDS": 1}
    job_events = reverse("admin:jobqueue_job_events", args=[job.pk])
    try:
        for path in (f"/jobqueue/jobs/{job.pk}/events/", "/jobqueue/events/", "/jobqueue/events/?tenant=", job_events):
            headers: dict[str, str] = {}
            for _ in ("with a snapshot", "replayed"):
                answer = opened(client, path, headers)
                read = b""
                parts = iter(answer.streaming_content)
                while read.count(b"\n\n") < 3 and b": ping" not in read:
                    read += next(parts)
                JobEvent.objects.create(job=job, name="job.failed", target=job.target, data={"message": TEXT})
                while b"job.failed" not in read.rpartition(b": ping")[2] and read.count(b": ping") < 4:
                    read += next(parts)
                assert b"event: " in read
                clean(read, (path, headers))
                answer.close()
                [first, *_] = re.findall(rb"^id: (\S+)$", read, re.MULTILINE)
                headers = {"Last-Event-ID": first.decode()}
    finally:
        gc.collect()  # ends the streams
        assert hub.close()


@pytest.mark.long
def test_no_command_shows_a_mark(job: Job) -> None:
    more = {"report": [str(job.pk), "--tracebacks"], "set-webhook": ["default"], "resume-job": [str(job.pk)], "cancel": [str(job.pk)]}
    more |= {"log": [str(job.pk)]}
    more |= {"pause": ["default"], "resume": ["default"], "prune": ["--older-than", "1e9"], "redeliver": ["1"]}
    more["deliveries"] = ["send-now", "1"]
    JobFactory(target="", unique_key=job.unique_key)
    for name in sorted(SUBCOMMANDS, key=lambda one: one == "cancel"):
        for json_wanted in ([], ["--json"]):
            out = io.StringIO()
            with contextlib.suppress(SystemExit, CommandError):
                call_command("jobqueue", name, *more.get(name, []), *json_wanted, stdout=out, stderr=out)
            clean(out.getvalue(), name)


def test_no_message_of_a_webhook_holds_a_mark(job: Job) -> None:
    for delivery in WebhookDelivery.objects.all():
        clean(body_of(delivery), delivery.pk)


def test_values_that_a_run_stores_logs_and_sends_have_no_secret_of_its_arguments(settings: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "jobqueue")
    Queue.objects.create(name="default", webhook_url="https://hooks.example/x")
    error = f"the server refused {VALUE}, {MARK} and {TEXT}"
    result = tasks.never_scheduled.enqueue(MARK, password=VALUE, fail=error)
    run_until_idle()
    job = Job.objects.get(pk=result.job_id)
    assert job.status == "ERROR"
    assert MARK in json.dumps([job.args, job.kwargs])  # the row's arguments stay as they are
    clean(job.message, "message")
    clean(json.dumps(job.history), "history")
    clean(json.dumps(list(JobEvent.objects.filter(job=job).values_list("data", flat=True))), "events")
    clean("".join(body_of(one) for one in WebhookDelivery.objects.filter(job=job)), "webhooks")
    clean(json.dumps(WebhookDelivery.objects.filter(job=job).values_list("facts", flat=True)[0]), "facts")
    for record in caplog.records:
        clean(record.getMessage(), "log")
        clean(record.exc_text or "", "log")
    assert "the server refused ********" in job.message


def test_a_secret_that_a_run_stores_in_its_metadata_is_hidden_in_all_of_its_texts(caplog: pytest.LogCaptureFixture) -> None:
    Queue.objects.create(name="default", webhook_url="https://hooks.example/x")
    result = tasks.signs_in.enqueue(MARK[::-1], "refused")
    run_until_idle()
    job = Job.objects.get(pk=result.job_id)
    assert job.message == "ValueError: refused ********"
    assert job.metadata == {"session_id": MARK}
    clean(json.dumps(job.history), "history")
    clean(json.dumps(list(JobEvent.objects.filter(job=job).values_list("data", flat=True))), "events")
    clean("".join(JobLog.objects.filter(job=job).values_list("lines", flat=True)), "log of the run")
    clean("".join(body_of(one) for one in WebhookDelivery.objects.filter(job=job)), "webhooks")
    for record in caplog.records:
        if record.name == "jobqueue":
            clean(record.getMessage() + (record.exc_text or ""), "log")
