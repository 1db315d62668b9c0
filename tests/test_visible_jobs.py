"""With ``VISIBLE_JOBS`` a user of one tenant neither sees nor moves a job of another, by whatever way."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth import get_user_model
from django.contrib.auth.models import AnonymousUser, Permission
from django.db.models import Q
from django.test import Client
from django.urls import reverse

from jobqueue import checks
from jobqueue.access import visible
from jobqueue.admin.verbs import VERBS
from jobqueue.api.endpoint import Endpoint
from jobqueue.api.endpoints import ENDPOINTS
from jobqueue.api.streams import recheck
from jobqueue.db import eventlog
from jobqueue.events import stream as streams
from jobqueue.events.stream import hub
from jobqueue.models import Job, JobEvent, JobLog, WebhookDelivery
from tests.events_stream.listening import Listening
from tests.factories import DeliveryFactory, JobFactory, ScheduleFactory, WorkerFactory

pytestmark = pytest.mark.django_db
GUARDED = [one for one in ENDPOINTS if not one.public]
MARK = "marktenantbeta"
HIDDEN = f"{MARK}-target"
MINE = "acme-target"


def of_acme(user: Any) -> Q:
    return Q() if user.is_superuser else Q(tenant="acme")


def by_subquery(user: Any) -> Q:
    return Q(pk__in=Job.objects.filter(tenant="acme").values("pk"))


def raises(user: Any) -> Q:
    raise RuntimeError("no rights today")


BROKEN = (raises, lambda user: None, lambda user: "acme", lambda user: Q(no_such_column=1))


@pytest.fixture(params=[of_acme, by_subquery])
def narrowed(request: Any, settings: Any) -> None:
    settings.JOBQUEUE = {"VISIBLE_JOBS": request.param, "EVENT_PING_SECONDS": 1}


@pytest.fixture
def client(db: None) -> Client:
    user = get_user_model().objects.create_user("acme", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(content_type__app_label="jobqueue"))
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def hidden(db: None) -> Job:
    """Make jobs of another tenant, in every state, all with its mark; return the one that the tests try to reach."""
    common = {"tenant": MARK, "queue": MARK, "message": MARK, "unique_key": ""}
    job: Job = JobFactory(running=True, target=HIDDEN, **{**common, "task": f"{MARK}.tasks.one"})
    JobFactory(waiting_for_target=True, **{**common, "target": HIDDEN})
    for state in ("queued", "paused", "error", "success", "scheduled", "canceled"):
        JobFactory(**{state: True}, **common)
    JobEvent.objects.create(job=job, name="job.started", tenant=MARK, target=HIDDEN, data={"message": MARK})
    JobLog.objects.create(job=job, attempt=1, first=1, last=1, level=20, lines=f'[[0, 20, "{MARK}", "{MARK}"]]')
    DeliveryFactory(job=job, delivered=True, queue=MARK, url=f"https://{MARK}.example/hook")
    gone = DeliveryFactory(job=job, failed=True, queue=MARK, url=f"https://{MARK}.example/gone")
    WebhookDelivery.objects.filter(pk=gone.pk).update(job=10**9)
    return job


@pytest.fixture
def mine(db: None) -> Job:
    job: Job = JobFactory(paused=True, target=MINE, tenant="acme", queue="acme-queue")
    JobFactory(waiting_for_target=True, target=MINE, tenant="acme", queue="acme-queue")
    DeliveryFactory(job=job, delivered=True)
    ScheduleFactory(tenant="acme"), WorkerFactory()
    return job


def state() -> list[Any]:
    return [
        *Job.objects.filter(tenant=MARK).order_by("pk").values_list("pk", "status", "cancel_requested", "run_at"),
        *WebhookDelivery.objects.filter(queue=MARK).order_by("pk").values_list("pk", "status", "attempts"),
    ]


@pytest.fixture(autouse=True)
def untouched(hidden: Job) -> Iterator[None]:
    before = state()
    yield
    assert state() == before


# REST


def ids(endpoint: Endpoint) -> str:
    return f"{endpoint.method} {endpoint.path}"


@pytest.mark.usefixtures("narrowed")
@pytest.mark.parametrize("endpoint", [one for one in GUARDED if not one.streams or "job_id" in one.path], ids=ids)
def test_no_address_of_rest_shows_or_moves_a_hidden_job(client: Client, hidden: Job, mine: Job, endpoint: Endpoint) -> None:
    named = {"queue": "acme-queue", "task": "shop.tasks.add", "bulk_id": "1", "worker": "web-1:7", "delivery": "1", "schedule": "nightly"}
    path = endpoint.path.format(job_id=hidden.pk, target=HIDDEN, **named)
    for query in ("", f"?tenant={MARK}"):
        answer = client.generic(endpoint.method, f"/jobqueue/{path}{query}")
        if "job_id" in endpoint.path:
            missing = client.generic(endpoint.method, f"/jobqueue/{path.replace(str(hidden.pk), str(10**9))}{query}")
            assert answer.status_code == missing.status_code == 404
            assert answer.content.replace(str(hidden.pk).encode(), b"") == missing.content.replace(str(10**9).encode(), b"")
        assert MARK.encode() not in answer.content


@pytest.mark.usefixtures("narrowed")
@pytest.mark.parametrize("endpoint", [one for one in GUARDED if "job_id" in one.path and not one.streams], ids=ids)
def test_each_address_of_rest_reaches_a_visible_job(client: Client, mine: Job, endpoint: Endpoint) -> None:
    path = endpoint.path.format(job_id=mine.pk, target=MINE)
    answer = client.generic(endpoint.method, f"/jobqueue/{path}?tenant=acme")
    assert answer.status_code in (200, 202, 409), answer.content


@pytest.mark.usefixtures("narrowed")
def test_the_lists_of_rest_show_and_count_visible_jobs(client: Client, mine: Job) -> None:
    JobFactory(tenant="acme", queue=MARK)  # in a queue where hidden jobs wait, too
    [line] = client.get("/jobqueue/targets/").json()["targets"]
    assert (line["target"], line["holder_id"], line["waiting"]) == (MINE, mine.pk, 1)
    queues = {one["name"]: one for one in client.get("/jobqueue/queues/").json()["queues"]}
    assert (queues[MARK]["queued"], queues[MARK]["running"]) == (1, 0)


@pytest.mark.long
@pytest.mark.usefixtures("mine")
def test_a_hidden_holder_of_a_visible_line_is_not_named(client: Client, settings: Any) -> None:
    holder = JobFactory(running=True, target="shared", tenant="acme", task="secret.tasks.one")
    waiting = JobFactory(waiting_for_target=True, target="shared", tenant="acme")
    settings.JOBQUEUE = {"VISIBLE_JOBS": lambda user: Q(tenant="acme") & ~Q(task="secret.tasks.one")}
    [line] = [one for one in client.get("/jobqueue/targets/").json()["targets"] if one["target"] == "shared"]
    assert (line["holder_id"], line["holder_task"], line["holder_status"], line["waiting"]) == (None, "", "RUNNING", 1)
    why = client.get(f"/jobqueue/jobs/{waiting.pk}/").json()["why_waiting"]
    assert why == {"gate": "target", "text": "It waits for a job that you may not see.", "job_id": None, "job_public_id": None}
    for page in (reverse("admin:jobqueue_job_targets"), reverse("admin:jobqueue_job_change", args=[waiting.pk])):
        shown = client.get(page).content.decode()
        assert "a job that you may not see" in shown
        assert f"#{holder.pk}" not in shown
        assert "secret.tasks.one" not in shown


# The admin


def pages_of(job: Job) -> list[str]:
    delivery = WebhookDelivery.objects.filter(job=job).get()
    return [
        reverse("admin:jobqueue_job_change", args=[job.pk]),
        reverse("admin:jobqueue_job_history", args=[job.pk]),
        reverse("admin:jobqueue_job_events", args=[job.pk]),
        *(reverse("admin:jobqueue_job_act", args=[job.pk, verb]) for verb in VERBS),
        reverse("admin:jobqueue_webhookdelivery_change", args=[delivery.pk]),
        reverse("admin:jobqueue_webhookdelivery_history", args=[delivery.pk]),
        reverse("admin:jobqueue_webhookdelivery_redeliver", args=[delivery.pk]),
    ]


@pytest.mark.long
@pytest.mark.usefixtures("narrowed")
def test_no_page_of_a_hidden_job_opens_and_no_button_works(client: Client, hidden: Job) -> None:
    for page in pages_of(hidden):
        for send in (client.get, client.post):
            answer = send(page, {"confirmed": str(hidden.pk)}, follow=True)
            assert MARK.encode() not in answer.content, page
            assert f"#{hidden.pk}<".encode() not in answer.content, page


@pytest.mark.long
@pytest.mark.usefixtures("narrowed", "mine")
@pytest.mark.parametrize(
    "query", ["", f"?tenant={MARK}", f"?target={HIDDEN}", f"?queue={MARK}", "?status=RUNNING", "?waiting=target", "?q={id}"]
)
def test_no_list_of_the_admin_shows_a_hidden_job(client: Client, hidden: Job, query: str) -> None:
    for model in admin.site._registry:
        if model._meta.app_label == "jobqueue":
            page = reverse(f"admin:jobqueue_{model._meta.model_name}_changelist")
            allowed = query if model is Job or not query or "q=" in query else ""
            answer = client.get(page + allowed.format(id=hidden.pk), follow=True)
            assert answer.status_code == 200
            shown = answer.content.decode().replace(query.lstrip("?"), "")
            # What the user has typed is shown again; the rest of the page must not know it.
            assert shown.count(MARK) <= (6 if MARK in query else 0), page
            assert f"#{hidden.pk}<" not in shown
    answer = client.get(reverse("admin:jobqueue_job_targets") + f"?tenant={MARK}")
    assert answer.context["targets"] == []


@pytest.mark.long
@pytest.mark.usefixtures("narrowed")
@pytest.mark.parametrize("verb", [*VERBS, "redeliver"])
def test_no_bulk_action_reaches_a_hidden_job(client: Client, hidden: Job, mine: Job, verb: str) -> None:
    model, rows = ("webhookdelivery", WebhookDelivery.objects.all()) if verb == "redeliver" else ("job", Job.objects.all())
    page = reverse(f"admin:jobqueue_{model}_changelist")
    ids = [str(one) for one in rows.values_list("pk", flat=True)]
    action = "redeliver_selected" if verb == "redeliver" else verb
    for across in ("0", "1"):
        data = {"action": action, "index": 0, "select_across": across, "_selected_action": ids, "confirmed": ",".join(ids)}
        assert MARK.encode() not in client.post(page, data, follow=True).content


@pytest.mark.usefixtures("narrowed")
def test_a_hidden_target_is_not_cleared(client: Client) -> None:
    client.post(f"{reverse('admin:jobqueue_job_clear_target')}?tenant={MARK}&target={HIDDEN}", {"confirmed": ""})


@pytest.mark.usefixtures("narrowed", "mine")
def test_a_superuser_sees_what_the_condition_says(client: Client, hidden: Job, settings: Any) -> None:
    if settings.JOBQUEUE["VISIBLE_JOBS"] is of_acme:
        get_user_model().objects.update(is_superuser=True)
        assert client.get(f"/jobqueue/jobs/{hidden.pk}/").status_code == 200
        assert len(client.get("/jobqueue/targets/").json()["targets"]) == 2


# A rule that fails


@pytest.mark.long
@pytest.mark.parametrize("rule", BROKEN)
def test_a_rule_that_fails_shows_nothing_and_is_logged(
    client: Client, mine: Job, settings: Any, rule: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings.JOBQUEUE = {"VISIBLE_JOBS": rule}
    with caplog.at_level(logging.ERROR, "jobqueue"):
        assert client.get(f"/jobqueue/jobs/{mine.pk}/").status_code == 404
    assert "VISIBLE_JOBS" in caplog.text
    assert client.get("/jobqueue/targets/").json() == {"targets": [], "more": False}
    assert list(client.get(reverse("admin:jobqueue_job_changelist")).context["cl"].result_list) == []
    assert list(client.get(reverse("admin:jobqueue_webhookdelivery_changelist")).context["cl"].result_list) == []


def test_a_rule_that_cannot_be_imported_is_reported_and_shows_nothing(client: Client, mine: Job, settings: Any) -> None:
    settings.JOBQUEUE = {"VISIBLE_JOBS": "tests.no_such.rule"}
    assert [one.id for one in checks.check_hooks()] == ["jobqueue.E009"]
    assert client.get(f"/jobqueue/jobs/{mine.pk}/").status_code == 404


def test_without_the_setting_all_jobs_are_seen(client: Client, hidden: Job) -> None:
    assert client.get(f"/jobqueue/jobs/{hidden.pk}/").status_code == 200
    assert visible.condition(AnonymousUser()) is None


def test_equal_conditions_share_one_query(settings: Any) -> None:
    settings.JOBQUEUE = {"VISIBLE_JOBS": by_subquery}
    assert visible.sight(None) == visible.sight(None)
    assert hash(visible.sight(None)) == hash(visible.sight(None))
    assert visible.Sight(Q(tenant="acme")) != visible.Sight(Q(tenant="beta"))
    assert visible.Sight(Q(pk__in=[])) == visible.Sight(visible.NOTHING)


# Streams


@pytest.fixture
def listen(client: Client, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Listening]]:
    monkeypatch.setattr(streams, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(streams, "IDLE_POLL_SECONDS", 0.02)
    opened: list[Any] = []

    def make(path: str, **headers: str) -> Listening:
        opened.append(client.get(f"/jobqueue/{path}", headers=headers))
        return Listening(opened[-1])

    yield make
    for response in opened:
        response.close()
    gc.collect()  # ends streams that a test has not kept
    assert hub.close()


def tell(job: Job, name: str = "job.progress", **data: Any) -> None:
    JobEvent.objects.create(job=job, name=name, attempt=1, tenant=job.tenant, target=job.target, data=data or None)


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("narrowed")
@pytest.mark.parametrize("path", ["events/", f"events/?tenant={MARK}", f"targets/{HIDDEN}/events/?tenant={MARK}"])
def test_no_stream_has_events_of_a_hidden_job(listen: Callable[..., Listening], hidden: Job, mine: Job, path: str) -> None:
    for headers in ({}, {"Last-Event-ID": f"{eventlog.event_history(Job.objects.database)}-1"}):
        one = listen(path, **headers)
        assert MARK not in str(one.message())  # the snapshot, or what was replayed
        tell(hidden, message=MARK)
        tell(mine, message="the last")
        seen = str(one.message())
        while path == "events/" and "the last" not in seen:
            seen += str(one.message())
        assert MARK not in seen
        one.response.close()


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
def test_a_stream_ends_when_what_its_user_may_see_changes(
    listen: Callable[..., Listening], mine: Job, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recheck, "CHECK_SECONDS", 0.1)
    rule = {"tenant": "acme"}
    settings.JOBQUEUE = {"VISIBLE_JOBS": lambda user: Q(**rule), "EVENT_PING_SECONDS": 1}
    for path in ("events/", f"jobs/{mine.pk}/events/"):
        rule["tenant"] = "acme"
        one = listen(path)
        assert one.event("jobqueue.snapshot")
        rule["tenant"] = "another"
        one.rest()  # returns when the server ends the stream


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
def test_a_deleted_job_is_reported_to_users_who_saw_it(listen: Callable[..., Listening], mine: Job, hidden: Job, settings: Any) -> None:
    settings.JOBQUEUE = {"VISIBLE_JOBS": of_acme, "EVENT_PING_SECONDS": 1}
    one = listen("events/")
    assert one.event("jobqueue.snapshot")
    tell(mine), tell(hidden)
    assert one.event("job.progress")["job_id"] == mine.pk
    number = mine.pk
    WebhookDelivery.objects.filter(job=mine).delete()
    mine.delete()
    assert one.event("job.deleted")["job_id"] == number
