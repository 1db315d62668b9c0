"""Webhooks in the admin: the list of deliveries, sending again, those of one job, and the webhook of a queue."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.utils.html import escape

from jobqueue.models import Queue, WebhookDelivery
from tests.admin.conftest import Login, choose, detail, told
from tests.factories import DeliveryFactory

pytestmark = pytest.mark.django_db
LIST = "/admin/jobqueue/webhookdelivery/"
WEBHOOK = "/admin/jobqueue/queue/webhook/"
EVIL = "<img src=x onerror=alert(1)>"
URL = "https://hooks.example/x?token=hunter2&plain"


@pytest.fixture
def sender(login: Login) -> Client:
    return login("view_job", "view_webhookdelivery", "redeliver_webhookdelivery")


def ended(**more: Any) -> Any:
    return DeliveryFactory(status="FAILED", attempts=11, url=URL, error=f"{EVIL} password=hunter2", body=f'{{"x":"{EVIL}"}}', **more)


def test_the_list_and_the_page_show_everything_but_secrets_and_as_text(sender: Client) -> None:
    row = ended()
    pages = [sender.get(url).content.decode() for url in (LIST, f"{LIST}{row.pk}/change/", detail(row.job))]
    for page in pages:
        assert "hunter2" not in page
        assert EVIL not in page
        assert escape(EVIL) in page
        assert "https://hooks.example/x?token=********" in page
        assert "Failed" in page
    assert f'href="{detail(row.job)}"' in pages[0]
    assert str(row.message_id) in pages[1]
    assert f'href="{LIST}{row.pk}/change/"' in pages[2]


def test_the_list_is_filtered_by_its_filters_only(sender: Client) -> None:
    ended()
    DeliveryFactory()
    assert len(sender.get(f"{LIST}?status__exact=FAILED").context["cl"].result_list) == 1
    assert sender.get(f"{LIST}?url__startswith=https").status_code in (302, 400)


def test_a_message_that_has_ended_is_sent_again_and_who_did_it_is_kept(sender: Client) -> None:
    failed, waiting = ended(), DeliveryFactory()
    answer = choose(sender, "redeliver", failed, waiting, url=LIST)
    assert told(answer) == ["1 of the messages will be sent again, each with the same id.", "1 of the messages are still to be sent."]
    found = WebhookDelivery.objects.get(pk=failed.pk)
    assert (found.status, found.attempts, found.message_id) == ("PENDING", 0, failed.message_id)
    assert [(entry.object_id, entry.get_change_message()) for entry in LogEntry.objects.all()] == [(str(failed.pk), "Sent again.")]


def test_sending_again_has_its_own_permission_and_is_done_by_post(login: Login) -> None:
    row = ended()
    viewer = login("view_job", "view_webhookdelivery", "change_webhookdelivery", "delete_webhookdelivery")
    choose(viewer, "redeliver", row, url=LIST)
    viewer.post(f"{LIST}{row.pk}/change/", {"status": "PENDING"})
    viewer.post(f"{LIST}{row.pk}/delete/", {"post": "yes"})
    able = login("view_webhookdelivery", "redeliver_webhookdelivery")
    able.get(LIST, {"action": "redeliver", "_selected_action": row.pk})
    forged = login("view_webhookdelivery", "redeliver_webhookdelivery", enforce_csrf_checks=True)
    assert choose(forged, "redeliver", row, url=LIST).status_code == 403
    assert WebhookDelivery.objects.get().status == "FAILED"
    assert login("view_job").get(LIST).status_code == 403
    assert "Webhooks</h2>" not in login("view_job").get(detail(row.job)).content.decode()


def test_a_selection_that_is_no_number_is_a_bad_request(sender: Client) -> None:
    ended()
    for value in ("x", "9" * 30, "\0"):
        assert sender.post(LIST, {"action": "redeliver", "_selected_action": value}).status_code == 400


# The webhook of a queue


@pytest.fixture
def chief(login: Login) -> Client:
    return login("view_queue", "change_queue")


def test_a_queue_gets_a_webhook_keeps_its_url_unseen_and_loses_it(chief: Client) -> None:
    events = ["job.failed", "job.retrying"]
    chief.post(WEBHOOK, {"queue": "mail", "url": URL, "events": events})
    queue = Queue.objects.get()
    assert (queue.name, queue.webhook_url, queue.webhook_events) == ("mail", URL, ["job.retrying", "job.failed"])
    page = chief.get(f"{WEBHOOK}?queue=mail").content.decode()
    assert "hunter2" not in page
    assert page.count(" checked>") == 2
    chief.post(WEBHOOK, {"queue": "mail", "url": ""})
    queue.refresh_from_db()
    assert (queue.webhook_url, queue.webhook_events) == (URL, [])
    chief.post(WEBHOOK, {"queue": "mail", "remove": "1"})
    queue.refresh_from_db()
    assert queue.webhook_url == ""
    kept = [entry.get_change_message() for entry in LogEntry.objects.order_by("pk")]
    assert len(kept) == 3
    assert "hunter2" not in "".join(kept)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"url": "ftp://example.com/"}, "must begin with https://"),
        ({"url": "http://127.0.0.1/"}, "is an address that is not public"),
        ({"url": "http://0x7f000001/"}, "is an address that is not public"),
        ({"url": "http://[::ffff:169.254.169.254]/"}, "is an address that is not public"),
        ({"url": "https://u:hunter2@example.com/"}, "no user name or password"),
        ({"url": "https://example.com/", "events": ["job.webhook.failed"]}, "is no event"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_reason(chief: Client, data: Any, text: str) -> None:
    answer = chief.post(WEBHOOK, {"queue": "mail", **data})
    assert text in told(answer)[0]
    assert "hunter2" not in told(answer)[0]
    assert not Queue.objects.exists()


def test_the_webhook_of_a_queue_needs_the_permission_and_a_token(login: Login) -> None:
    data = {"queue": "mail", "url": "https://example.com/"}
    assert login("view_queue").post(WEBHOOK, data).status_code == 403
    assert login("view_queue").get(f"{WEBHOOK}?queue=mail").status_code == 403
    assert login("view_queue", "change_queue", enforce_csrf_checks=True).post(WEBHOOK, data).status_code == 403
    assert login("view_queue", "change_queue").get(WEBHOOK).status_code == 404
    assert not Queue.objects.exists()
