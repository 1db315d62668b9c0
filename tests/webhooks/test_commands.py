"""``manage.py jobqueue webhooks``, ``redeliver`` and ``set-webhook``."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError
from django.utils import timezone

from jobqueue.core.webhook_rules import shown_url
from jobqueue.management import webhooks
from jobqueue.models import Queue, WebhookDelivery
from tests.command import run, told
from tests.factories import DeliveryFactory

pytestmark = pytest.mark.django_db
URL = "https://example.com/hook?token=hunter2"


def rows(*args: Any) -> list[list[str]]:
    return [line.split() for line in run("webhooks", *args)[0].splitlines()[2:]]


def test_the_newest_deliveries_are_shown_first_and_without_secrets() -> None:
    assert run("webhooks") == ("Webhook deliveries\n  none\n", 0)
    sent = DeliveryFactory(delivered=True, url=URL)
    failed = DeliveryFactory(failed=True, error="token=hunter3\n\x1b[2J")
    waiting = DeliveryFactory(attempts=2, next_attempt_at=timezone.now() + timedelta(hours=1), response_status=500, error="answered 500")
    shown = rows()
    assert [row[:2] for row in shown] == [[str(waiting.pk), "PENDING"], [str(failed.pk), "FAILED"], [str(sent.pk), "DELIVERED"]]
    assert shown[0][6:9] in (["2", "in", "3600"], ["2", "in", "3599"])
    assert shown[2][3:] == [str(sent.job_id), *shown_url(URL).split(), "1", "-", "204"]
    assert "hunter" not in run("webhooks")[0] + run("webhooks", "--json")[0]


def test_one_state_can_be_chosen() -> None:
    DeliveryFactory(delivered=True)
    failed = DeliveryFactory(failed=True)
    assert [row[0] for row in rows("--status", "failed")] == [str(failed.pk)]
    [data] = told("webhooks", "--status", "FAILED")[0]
    assert (data["delivery"], data["job"], data["status"], data["attempts"], data["response_status"]) == (
        failed.pk,
        failed.job_id,
        "FAILED",
        11,
        500,
    )
    with pytest.raises(CommandError, match=r"--status is 'lost'; it must be one of PENDING, DELIVERED, FAILED"):
        run("webhooks", "--status", "lost")


def test_no_more_than_a_number_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "MAX_SHOWN", 2)
    for _ in range(3):
        DeliveryFactory()
    assert len(rows()) == 2


def test_deliveries_are_sent_again_and_those_that_cannot_be_are_reported() -> None:
    failed, waiting = DeliveryFactory(failed=True), DeliveryFactory()
    text, status = run("redeliver", failed.pk, waiting.pk, 999999)
    assert status == 1
    assert text.splitlines() == [
        f"Delivery {failed.pk} is sent again.",
        f"Delivery {waiting.pk} is not sent again: it has not been sent yet, or is being sent.",
        "Delivery 999999 is not sent again: there is no such delivery; it may have been deleted.",
    ]
    assert WebhookDelivery.objects.values_list("status", "attempts").get(pk=failed.pk) == ("PENDING", 0)
    assert run("redeliver", DeliveryFactory(delivered=True).pk)[1] == 0


@pytest.mark.parametrize("text", ["0", "x", "-1", "9" * 19, "9" * 30, "²"])
def test_a_number_that_no_delivery_has_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match=r"DELIVERY_ID is .*; it must be a whole number from 1 to 9223372036854775807"):
        run("redeliver", "--", text)


def test_the_receiver_of_a_queue_is_set_shown_and_taken_away() -> None:
    text = f"The events job.failed of queue 'mail' are sent to {shown_url(URL)}"
    assert run("set-webhook", "mail", URL, "--event", "job.failed") == (f"{text}.\n", 0)
    assert Queue.objects.values_list("webhook_url", "webhook_events").get() == (URL, ["job.failed"])
    assert run("set-webhook", "mail", URL) == (f"{text} (no change).\n", 0)
    assert run("set-webhook", "mail") == (f"{text}.\n", 0)
    assert told("set-webhook", "mail", URL, "--event", "") == (
        {"name": "mail", "changed": True, "url": shown_url(URL), "events": []},
        0,
    )
    assert run("set-webhook", "mail", "") == ("Queue 'mail' sends no events.\n", 0)
    assert Queue.objects.get().webhook_url == ""


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("mail", "example.com"), "webhook_url is 'example.com'"),
        (("mail", URL, "--event", "job.gone"), "'job.gone' is not an event"),
        (("", URL), "The name of the queue is ''"),
        (("mail", "--event", "job.failed"), "--event needs a URL"),
    ],
)
def test_a_wrong_receiver_is_refused(arguments: tuple[str, ...], text: str) -> None:
    with pytest.raises(CommandError) as caught:
        run("set-webhook", *arguments)
    assert text in str(caught.value)
    assert Queue.objects.count() == 0


def test_one_delivery_is_shown_with_its_attempts() -> None:
    entry = {"attempt": 1, "at": "2026-01-02T03:04:05+00:00", "url": shown_url(URL), "status": 500, "milliseconds": 12}
    delivery = DeliveryFactory(failed=True, history=[{**entry, "error": "no", "excerpt": "out of paper\ntoken=hunter4"}])
    text = run("webhooks", str(delivery.pk))[0]
    assert "2026-01-02 03:04:05" in text
    assert "out of paper" in text
    assert "hunter4" not in text
    assert told("webhooks", str(delivery.pk))[0]["history"][0]["milliseconds"] == 12
    with pytest.raises(CommandError, match="There is no delivery 99"):
        run("webhooks", "99")
    with pytest.raises(CommandError, match="DELIVERY_ID is 'x'"):
        run("webhooks", "x")
