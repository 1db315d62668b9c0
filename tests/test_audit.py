"""The audit: one line for each change and each refusal, by the admin, REST and the command line."""

from __future__ import annotations

import contextlib
import io
import logging
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.core.management import CommandError, call_command
from django.db.models import Q
from django.http import HttpRequest
from django.test import Client
from django.urls import reverse

from jobqueue.access import audit
from jobqueue.models import Job, Queue
from tests.factories import DeliveryFactory, JobFactory, ScheduleFactory

pytestmark = pytest.mark.django_db
Lines = Callable[[], list[tuple[str, ...]]]


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Lines:
    caplog.set_level(logging.INFO, "jobqueue.audit")

    def read() -> list[tuple[str, ...]]:
        found = [one for one in caplog.records if one.name == "jobqueue.audit"]
        rows = [tuple(getattr(one, f"audit_{name}") for name in ("actor", "verb", "object", "verdict")) for one in found]
        caplog.clear()
        return rows

    return read


@pytest.fixture
def client(db: None) -> Client:
    user = get_user_model().objects.create_user("anna", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(content_type__app_label="jobqueue"))
    client = Client()
    client.force_login(user)
    return client


class Robot:
    """A user without a row of the project's model."""

    is_authenticated = is_active = True
    name = "deployer"

    def has_perm(self, name: str) -> bool:
        return name != "jobqueue.pause_queue"


def robot(request: HttpRequest) -> Any:
    return Robot() if request.headers.get("Authorization") == "Bearer x" else None


def anna() -> str:
    return audit.name_of(get_user_model().objects.get(username="anna"))


@pytest.mark.long
def test_the_verbs_of_the_admin_are_recorded_with_their_refusals(client: Client, lines: Lines) -> None:
    job, done = JobFactory(), JobFactory(success=True)
    client.post(reverse("admin:jobqueue_job_act", args=[job.pk, "pause"]), REMOTE_ADDR="192.0.2.7")
    client.post(reverse("admin:jobqueue_job_act", args=[done.pk, "cancel"]))
    assert lines() == [(anna(), "pause", f"job {job.pk}", "done"), (anna(), "cancel", f"job {done.pk}", "refused")]
    assert [entry.change_message for entry in LogEntry.objects.order_by("pk")] == ["Paused; the job was QUEUED."]
    schedule, delivery = ScheduleFactory(), DeliveryFactory(delivered=True)
    client.post(reverse("admin:jobqueue_schedule_act", args=[schedule.pk, "disable"]))
    client.post(reverse("admin:jobqueue_webhookdelivery_redeliver", args=[delivery.pk]), {"confirmed": str(delivery.pk)})
    client.post(reverse("admin:jobqueue_queue_decide", args=["pause"]), {"queue": "mail"})
    assert [row[2:] for row in lines()] == [
        (f"schedule {schedule.pk}", "done"),
        (f"webhook delivery {delivery.pk}", "done"),
        ("queue mail", "done"),
    ]


def test_forbidden_requests_in_the_admin_are_recorded(client: Client, lines: Lines) -> None:
    get_user_model().objects.get().user_permissions.set(Permission.objects.filter(codename="view_job"))
    page = reverse("admin:jobqueue_job_act", args=[JobFactory().pk, "cancel"])
    assert client.post(page).status_code == 403
    assert lines() == [(anna(), "POST", page, "forbidden")]
    assert client.get(page).status_code == 403
    assert lines() == []


def test_rest_is_recorded_for_users_that_are_no_rows(client: Client, lines: Lines, settings: Any) -> None:
    settings.JOBQUEUE = {"API_AUTHENTICATOR": robot}
    job, done = JobFactory(), JobFactory(success=True)
    known = {"headers": {"Authorization": "Bearer x"}}
    client.post(f"/jobqueue/jobs/{job.pk}/cancel/", **known)
    client.post(f"/jobqueue/jobs/{done.pk}/cancel/", **known)
    client.post("/jobqueue/queues/mail/pause/", **known)
    client.post("/jobqueue/queues/mail/pause/", headers={"Authorization": "Bearer wrong"})
    assert lines() == [
        ("user deployer", "cancel", f"job {job.pk}", "done"),
        ("user deployer", "cancel", f"job {done.pk}", "refused"),
        ("user deployer", "POST", "/jobqueue/queues/mail/pause/", "forbidden"),
        ("unknown", "POST", "/jobqueue/queues/mail/pause/", "forbidden"),
    ]
    assert not LogEntry.objects.exists()


def test_rest_is_recorded_in_the_log_of_the_admin_for_users_that_are_rows(client: Client, lines: Lines) -> None:
    job = JobFactory()
    client.post(f"/jobqueue/jobs/{job.pk}/cancel/")
    client.post(f"/jobqueue/jobs/{job.pk}/cancel/")
    assert [row[1:] for row in lines()] == [("cancel", f"job {job.pk}", "done"), ("cancel", f"job {job.pk}", "refused")]
    assert LogEntry.objects.get().change_message == "Canceled over REST; the job was QUEUED."


def test_a_change_of_what_does_not_exist_or_is_hidden_is_recorded(client: Client, lines: Lines, settings: Any) -> None:
    settings.JOBQUEUE = {"VISIBLE_JOBS": lambda user: Q(tenant="acme")}
    hidden, gone = JobFactory(tenant="other"), 10**9
    for address in (f"jobs/{hidden.pk}/cancel/", f"jobs/{gone}/pause/", f"jobs/{'9' * 30}/resume/", f"targets/x/jobs/{hidden.pk}/run-now/"):
        assert client.post(f"/jobqueue/{address}").status_code == 404
        assert lines() == [(anna(), "POST", f"/jobqueue/{address}", "refused")]
    assert client.delete(f"/jobqueue/jobs/{hidden.pk}/").status_code == 404
    assert client.post("/jobqueue/queues/mail/pause/?until=soon").status_code == 400
    assert [(verb, verdict) for _, verb, _, verdict in lines()] == [("DELETE", "refused"), ("POST", "refused")]
    assert client.get(f"/jobqueue/jobs/{hidden.pk}/").status_code == 404
    assert lines() == []


@pytest.mark.long
def test_a_change_in_the_admin_of_what_does_not_exist_or_is_hidden_is_recorded(client: Client, lines: Lines, settings: Any) -> None:
    settings.JOBQUEUE = {"VISIBLE_JOBS": lambda user: Q(tenant="acme")}
    hidden, sent = JobFactory(tenant="other"), DeliveryFactory(delivered=True)
    client.post(reverse("admin:jobqueue_job_act", args=[hidden.pk, "cancel"]))
    client.post(reverse("admin:jobqueue_job_changelist"), {"action": "pause", "_selected_action": [hidden.pk]})
    client.post(reverse("admin:jobqueue_webhookdelivery_redeliver", args=[sent.pk]))
    client.post(reverse("admin:jobqueue_webhookdelivery_changelist"), {"action": "redeliver_selected", "_selected_action": [sent.pk]})
    client.post(reverse("admin:jobqueue_schedule_act", args=[10**9, "run_now"]))
    client.post(f"{reverse('admin:jobqueue_job_clear_target')}?target=x")
    client.post(reverse("admin:jobqueue_queue_decide", args=["limit"]), {"queue": "mail", "max_running": "many"})
    client.post(reverse("admin:jobqueue_queue_decide", args=["pause"]), {"queue": "mail"})
    client.post(reverse("admin:jobqueue_queue_decide", args=["forget"]), {"queue": "mail"})
    client.get(reverse("admin:jobqueue_job_act", args=[hidden.pk, "cancel"]))
    assert [row[1:] for row in lines()] == [
        ("cancel", f"job {hidden.pk}", "refused"),
        ("pause", f"job {hidden.pk}", "refused"),
        ("redeliver", f"webhook delivery {sent.pk}", "refused"),
        ("redeliver", f"webhook delivery {sent.pk}", "refused"),
        ("run_now", "schedule 1000000000", "refused"),
        ("clear", "target x of tenant ''", "refused"),
        ("limit", "queue mail", "refused"),
        ("pause", "queue mail", "done"),
        ("forget", "queue mail", "done"),
    ]


@pytest.mark.long
def test_the_command_line_is_recorded(lines: Lines) -> None:
    job, sent = JobFactory(), DeliveryFactory(delivered=True)
    blocker, nightly = JobFactory(error=True, target="customer:7"), ScheduleFactory(name="nightly")
    who, _ = audit.operator()

    def run(*arguments: Any) -> None:
        with contextlib.suppress(SystemExit, CommandError):
            call_command("jobqueue", *map(str, arguments), stdout=io.StringIO(), stderr=io.StringIO())

    for arguments in (
        *(("pause", "mail"), ("pause", "mail"), ("resume", "mail"), ("cancel", job.pk, 10**9), ("resume-job", job.pk)),
        *(("redeliver", sent.pk, 10**9), ("set-webhook", "mail", "https://example.com/hunter2"), ("set-webhook", "mail", "no url")),
        *(("forget", "mail"), ("forget", "mail")),
        *(("clear-target", "customer:7"), ("disable-schedule", "nightly"), ("run-schedule", "nightly"), ("run-schedule", "no such")),
        *(("set-webhook", "mail"), ("status",), ("prune", "--older-than", "1e9"), ("prune", "--older-than", "1", "--dry-run")),
    ):
        run(*arguments)
    assert lines() == [
        (who, "pause", "queue mail", "done"),
        (who, "pause", "queue mail", "no change"),
        (who, "resume", "queue mail", "done"),
        (who, "cancel", f"job {job.pk}", "done"),
        (who, "cancel", "job 1000000000", "refused"),
        (who, "resume", f"job {job.pk}", "refused"),
        (who, "redeliver", f"webhook delivery {sent.pk}", "done"),
        (who, "redeliver", "webhook delivery 1000000000", "refused"),
        (who, "set-webhook", "queue mail", "done"),
        (who, "set-webhook", "mail", "refused"),
        (who, "forget", "queue mail", "done"),
        (who, "forget", "queue mail", "no change"),
        (who, "cancel", f"job {blocker.pk}", "done"),
        (who, "disable", f"schedule {nightly.pk}", "done"),
        (who, "run_now", f"schedule {nightly.pk}", "done"),
        (who, "run-schedule", "no such", "refused"),
        (who, "prune", "jobs", "done"),
    ]


def test_a_line_forges_nothing_and_shows_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "jobqueue.audit")
    audit.record("x\nforged", "pause", Queue(name="a\nb"), "done", "192.0.2.7", text="to https://u:hunter2@h/")
    [message] = [one.getMessage() for one in caplog.records]
    assert "\n" not in message
    assert "hunter2" not in message
    assert "192.0.2.7" in message
    assert Job.objects.count() == 0
