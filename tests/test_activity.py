"""The activity: who did what to which object, from the admin, REST and the command line, and who may see it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core.management.base import CommandError
from django.db.models import Q
from django.test import Client

from jobqueue import clock
from jobqueue.access import audit
from jobqueue.bulk import actions
from jobqueue.bulk.work import BulkWork
from jobqueue.models import AuditRecord, Queue
from jobqueue.retention.events import OldEvents
from tests.admin.conftest import Login, login  # noqa: F401 - a fixture
from tests.command import run, told
from tests.factories import DeliveryFactory, JobFactory, ScheduleFactory, WorkerFactory

pytestmark = pytest.mark.django_db
PAGE, REST = "/admin/jobqueue/auditrecord/", "/jobqueue/activity/"


def made() -> list[tuple[str, str, str, str]]:
    return list(AuditRecord.objects.order_by("pk").values_list("name", "source", "verb", "object"))


@pytest.fixture
def root() -> Client:
    client = Client()
    client.force_login(get_user_model().objects.create_superuser("root"))
    return client


def test_changes_in_the_admin_over_rest_and_by_commands_are_kept_with_the_same_verbs(root: Client) -> None:
    job, delivery, worker, schedule = JobFactory(), DeliveryFactory(delivered=True), WorkerFactory(host="web-1", pid=7), ScheduleFactory()
    me = audit.operator()[0].removeprefix("operator ").partition(" (")[0]
    root.post(f"/admin/jobqueue/job/{job.pk}/act/pause/", REMOTE_ADDR="192.0.2.7")
    root.post(f"/jobqueue/jobs/{job.pk}/resume/")
    run("cancel", job.pk)
    root.post(f"/admin/jobqueue/webhookdelivery/{delivery.pk}/redeliver/", {"confirmed": str(delivery.pk)})
    run("deliveries", "give-up", delivery.pk)
    root.post(f"/admin/jobqueue/worker/{worker.pk}/drain/")
    root.post(f"/admin/jobqueue/schedule/{schedule.pk}/act/disable/")
    root.post("/admin/jobqueue/queue/decide/pause/", {"queue": "mail"})
    assert made() == [
        ("root", "admin", "pause", f"job {job.pk}"),
        ("root", "rest", "resume", f"job {job.pk}"),
        (me, "command", "cancel", f"job {job.pk}"),
        ("root", "admin", "redeliver", f"webhook delivery {delivery.pk}"),
        (me, "command", "give-up", f"webhook delivery {delivery.pk}"),
        ("root", "admin", "drain", f"worker {worker.pk}"),
        ("root", "admin", "disable", f"schedule {schedule.pk}"),
        ("root", "admin", "pause", "queue mail"),
    ]
    assert AuditRecord.objects.earliest("pk").address == "192.0.2.7"


def test_refusals_and_requests_without_a_permission_are_not_kept(root: Client, login: Login) -> None:  # noqa: F811
    job = JobFactory(success=True)
    root.post(f"/jobqueue/jobs/{job.pk}/cancel/")
    run("cancel", job.pk, 10**9)
    login("view_job").post(f"/jobqueue/jobs/{job.pk}/cancel/")
    Client().post(f"/jobqueue/jobs/{job.pk}/cancel/")
    assert made() == []


def test_each_job_of_a_bulk_action_names_who_requested_it() -> None:
    user, jobs = get_user_model().objects.create_superuser("root"), [JobFactory(error=True).pk for _ in range(3)]
    actions.create("cancel", "status:ERROR", actor=user, source="rest")
    BulkWork().run()
    assert made()[1:] == [("root", "bulk", "cancel", f"job {job}") for job in jobs]
    assert told("activity", "--job", str(jobs[1]))[0][0]["text"].startswith("By bulk action ")


def test_the_page_the_command_and_rest_filter_by_user_and_verb(root: Client) -> None:
    for actor, verb, name in (("operator anna", "pause", "mail"), ("operator bob", "resume", "mail"), ("operator anna", "resume", "print")):
        audit.record(actor, verb, Queue(name=name), audit.DONE, "web-1", text="Done by hand.")

    def shown(query: str) -> list[str]:
        found = root.get(f"{PAGE}{query}").context["cl"].result_list
        return [f"{one.name} {one.verb} {one.key}" for one in found]

    assert shown("") == ["anna resume print", "bob resume mail", "anna pause mail"]
    assert shown("?user=anna&verb=resume") == ["anna resume print"]
    assert shown("?user=nobody") == shown("?verb=%00") == []
    page = root.get(PAGE).content.decode()
    assert "Done by hand." in page
    assert 'href="/admin/jobqueue/queue/mail/change/"' in page
    assert [one["name"] for one in root.get(f"{REST}?actor=bob").json()["activity"]] == ["bob"]
    assert [one["object"] for one in root.get(f"{REST}?did=resume&limit=1").json()["activity"]] == ["queue print"]
    first = root.get(f"{REST}?limit=2").json()
    assert (first["more"], len(first["activity"])) == (True, 2)
    assert [one["verb"] for one in root.get(f"{REST}?limit=2&after={first['after']}").json()["activity"]] == ["pause"]
    assert [one["object"] for one in told("activity", "--actor", "anna", "--verb", "pause")[0]] == ["queue mail"]
    assert "Done by hand." in run("activity")[0]
    for wrong in ("?actor=%00", "?job=x", "?limit=0", "?after=x"):
        assert root.get(f"{REST}{wrong}").status_code in (400, 404)
    for arguments in (("--job", "x"), ("--limit", "0")):
        with pytest.raises(CommandError):
            run("activity", *arguments)


def test_what_was_done_yesterday_is_found_by_page_rest_and_command(root: Client) -> None:
    for days, name in ((0, "mail"), (1, "print"), (2, "fax")):
        audit.record("operator x", "pause", Queue(name=name), audit.DONE)
        AuditRecord.objects.filter(key=name).update(at=clock.now() - timedelta(days=days))
    url = next(choice["query_string"] for choice in choices(root) if choice["display"] == "Yesterday")
    assert [one.key for one in root.get(f"{PAGE}{url}").context["cl"].result_list] == ["print"]
    now = datetime.now(UTC)
    since, before = f"{now - timedelta(hours=36):%Y-%m-%dT%H:%MZ}", "12h"
    assert [one["object"] for one in root.get(f"{REST}?since={since}&before={before}").json()["activity"]] == ["queue print"]
    assert [one["object"] for one in told("activity", "--since", "36h", "--before", before)[0]] == ["queue print"]
    assert root.get(f"{REST}?since=x").json()["error"]["message"].startswith("since is 'x'; it must be a number with s, m, h, d or w")
    with pytest.raises(CommandError, match="--before is 'x'; it must be"):
        run("activity", "--before", "x")


def choices(root: Client) -> list[dict[str, Any]]:
    spec = root.get(PAGE).context["cl"].filter_specs[-1]
    return [*spec.choices(root.get(PAGE).context["cl"])]


def acme(user: Any) -> Q:
    return Q(tenant="acme")


def test_who_may_not_see_all_jobs_sees_only_what_was_done_to_visible_ones(login: Login, settings: Any) -> None:  # noqa: F811
    mine, hidden = JobFactory(tenant="acme"), JobFactory(tenant="other")
    for one in (mine, hidden, Queue(name="mail"), DeliveryFactory(job=mine)):
        audit.record("operator x", "cancel", one, audit.DONE)
    settings.JOBQUEUE = {"VISIBLE_JOBS": acme}
    client = login("view_auditrecord", "view_job")
    assert {one["job_id"] for one in client.get(REST).json()["activity"]} == {mine.pk}
    assert len(client.get(PAGE).context["cl"].result_list) == 2
    assert client.get(f"{REST}?job={hidden.pk}").json()["activity"] == []


def test_the_permission_is_needed_and_nothing_can_be_changed(login: Login, root: Client) -> None:  # noqa: F811
    audit.record("operator x", "cancel", JobFactory(), audit.DONE)
    client = login("view_job")
    assert (client.get(PAGE).status_code, client.get(REST).status_code) == (403, 403)
    record = AuditRecord.objects.get()
    for path in (f"{PAGE}{record.pk}/change/", f"{PAGE}{record.pk}/delete/", f"{PAGE}add/"):
        assert root.post(path).status_code == 403
    assert AuditRecord.objects.count() == 1


def test_a_secret_in_a_name_or_text_is_masked_and_makes_no_link(root: Client) -> None:
    audit.record("operator x", "pause", Queue(name="token=hunter2"), audit.DONE, text="to https://u:hunter3@h/")
    record = AuditRecord.objects.get()
    assert (record.model, record.key) == ("", "")
    assert "hunter" not in root.get(PAGE).content.decode() + run("activity")[0] + run("activity", "--json")[0]


def test_old_records_are_deleted_as_events_are() -> None:
    for _ in range(2):
        audit.record("operator x", "cancel", JobFactory(), audit.DONE)
    AuditRecord.objects.filter(pk=AuditRecord.objects.earliest("pk").pk).update(at=clock.now() - timedelta(days=40))
    assert OldEvents(86400.0).run(1.0)[0] == 1
    assert AuditRecord.objects.count() == 1


def test_a_change_that_is_rolled_back_leaves_no_record(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    job = JobFactory()

    def fail(*args: Any, **options: Any) -> None:
        raise OSError("no more")

    monkeypatch.setattr(audit, "_write", fail)
    client = Client(raise_request_exception=False)
    client.force_login(get_user_model().objects.get(username="root"))
    assert client.post(f"/jobqueue/jobs/{job.pk}/cancel/").status_code == 500
    job.refresh_from_db()
    assert (job.status, made()) == ("QUEUED", [])
