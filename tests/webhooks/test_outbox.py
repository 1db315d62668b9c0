"""The outbox: claims, writes, and redelivery by an operator."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.test import Client

from jobqueue import clock
from jobqueue.core.webhook_rules import shown_url
from jobqueue.models import Job, JobEvent, Queue, WebhookDelivery
from jobqueue.public_ids import public_id
from jobqueue.webhooks import outbox
from jobqueue.webhooks.outbox import Message
from jobqueue.webhooks.shown import attempts_of
from tests.factories import DeliveryFactory, JobFactory
from tests.unchecked import write

pytestmark = pytest.mark.django_db


def claim(limit: int = 10, most: int = 100, busy: dict[str, int] | None = None) -> list[Message]:
    return outbox.DeliveryClaimer().claim(limit, lambda origin: most - (busy or {}).get(origin, 0))


def settle(message: Message, **answer: Any) -> str:
    return outbox.write_result(message, **{"delivered": False, "final": False, "status": None, "error": "", "retry_after": None, **answer})


def row() -> WebhookDelivery:
    return WebhookDelivery.objects.get()


def events() -> list[str]:
    return list(JobEvent.objects.order_by("id").values_list("name", flat=True))


def test_due_deliveries_are_claimed_in_order_and_are_not_due_meanwhile() -> None:
    later, first = DeliveryFactory(), DeliveryFactory(next_attempt_at=clock.now() - timedelta(hours=1))
    DeliveryFactory(next_attempt_at=clock.now() + timedelta(hours=1))
    DeliveryFactory(status="FAILED")
    assert [one.delivery_id for one in claim()] == [first.pk, later.pk]
    assert claim() == []
    later.refresh_from_db()
    assert 15 < (later.next_attempt_at - clock.now()).total_seconds() <= 20
    assert later.attempts == 1


def test_a_row_with_the_highest_number_of_attempts_stops_no_other() -> None:
    full, right = DeliveryFactory(attempts=2**31 - 1), DeliveryFactory()
    assert {one.delivery_id: one.attempts for one in claim()} == {right.pk: 1}
    full.refresh_from_db()
    assert full.status == "FAILED"


@contextmanager
def refused(condition: str, delivery: WebhookDelivery) -> Iterator[None]:
    """Refuse each UPDATE of a delivery to which a condition applies."""
    when = f"WHEN (({condition}) AND NEW.id = {delivery.pk})"
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute(
                f"CREATE TRIGGER refuse BEFORE UPDATE ON jobqueue_webhookdelivery {when} BEGIN SELECT RAISE(ABORT, 'it is refused'); END"
            )
        else:
            body = "BEGIN RAISE check_violation USING MESSAGE = 'it is refused'; END"
            cursor.execute(f"CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$")
            cursor.execute(f"CREATE TRIGGER refuse BEFORE UPDATE ON jobqueue_webhookdelivery FOR EACH ROW {when} EXECUTE FUNCTION refuse()")
        yield


def test_a_delivery_whose_results_are_always_refused_is_given_up_in_the_end(settings: Any) -> None:
    settings.JOBQUEUE = {"WEBHOOK_MAX_ATTEMPTS": 3}
    endless, late, good = DeliveryFactory(attempts=8), DeliveryFactory(attempts=7), DeliveryFactory()
    assert [one.delivery_id for one in claim(10)] == [late.pk, good.pk]
    endless.refresh_from_db()
    assert (endless.status, endless.error) == (
        "FAILED",
        "Set aside: It had 5 attempts more than the maximum of 3, because their results could not be stored.",
    )


def test_a_delivery_that_takes_no_attempt_is_given_up_and_stops_no_other() -> None:
    first, bad, last = DeliveryFactory.create_batch(3)
    with refused("NEW.status = 'PENDING'", bad):
        assert [(one.delivery_id, one.attempts) for one in claim()] == [(first.pk, 1), (last.pk, 1)]
    bad.refresh_from_db()
    assert (bad.status, bad.attempts, bad.error) == ("FAILED", 0, "Set aside: it is refused")


def test_a_delivery_that_refuses_any_change_is_skipped_for_a_while_and_delays_no_other() -> None:
    first, bad = DeliveryFactory.create_batch(2)
    beginner = outbox.DeliveryClaimer()

    def begun() -> list[int]:
        return [one.delivery_id for one in beginner.claim(10, lambda receiver: 1)]

    with refused("NEW.id > 0", bad):
        DeliveryFactory.create_batch(2, url="http://other.example/x")
        assert first.pk in begun()
        assert bad.pk not in begun(), "it keeps no room of its receiver"
    later = DeliveryFactory()
    assert begun() == [later.pk]
    bad.refresh_from_db()
    assert (bad.status, bad.attempts) == ("PENDING", 0)


@pytest.mark.sqlite
@pytest.mark.parametrize("value", ["'x'", "x'01'"])
def test_a_text_in_place_of_the_number_of_attempts_counts_as_none(value: str) -> None:
    first, bad, last = DeliveryFactory.create_batch(3)
    write(WebhookDelivery, bad.pk, "attempts", value)
    assert [one.delivery_id for one in claim()] == [first.pk, bad.pk, last.pk]


@pytest.mark.sqlite
@pytest.mark.parametrize("value", ["'junk'", "x'00'"])
def test_a_delivery_whose_id_is_no_uuid_is_sent_with_the_same_id_at_each_attempt(value: str) -> None:
    first, bad, last = DeliveryFactory.create_batch(3)
    write(WebhookDelivery, bad.pk, "message_id", value)
    before = claim()
    assert [one.delivery_id for one in before] == [first.pk, bad.pk, last.pk]
    assert settle(before[1], status=500, error="no") == "PENDING"
    WebhookDelivery.objects.filter(status="PENDING").update(next_attempt_at=clock.now() - timedelta(seconds=1))
    again = next(one for one in claim() if one.delivery_id == bad.pk)
    assert again.message_id == before[1].message_id
    assert len({one.message_id for one in before}) == 3


@pytest.mark.sqlite
def test_a_delivery_that_cannot_be_read_is_given_up_and_stops_no_other() -> None:
    first, bad, last = DeliveryFactory.create_batch(3)
    write(WebhookDelivery, bad.pk, "body", "CAST(x'ff' AS TEXT)")
    assert [one.delivery_id for one in claim()] == [first.pk, last.pk]
    [(status, error)] = WebhookDelivery.objects.filter(pk=bad.pk).values_list("status", "error")
    assert status == "FAILED"
    assert error.startswith("Set aside: ")


@pytest.mark.long
def test_a_receiver_that_is_busy_enough_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    # However many wait for it: they are left out, not walked over.
    monkeypatch.setattr(outbox, "MAX_BATCHES", 2)
    DeliveryFactory.create_batch(250, url="http://silent.example/x", next_attempt_at=clock.now() - timedelta(hours=1))
    DeliveryFactory(url="http://silent.example", next_attempt_at=clock.now() - timedelta(hours=1))
    good = DeliveryFactory(url="http://good.example/x")
    taken = claim(limit=5, most=2)
    assert Counter(one.url for one in taken) == {"http://silent.example/x": 2, "http://good.example/x": 1}
    assert good.pk in [one.delivery_id for one in taken]
    assert claim(most=2, busy={"http://silent.example": 2}) == []
    assert len(claim(most=4, busy={"http://silent.example": 2})) == 2


def test_id_and_body_are_the_same_at_each_attempt_though_the_facts_are_gone() -> None:
    made = DeliveryFactory(facts={"job_id": 7, "status": "SUCCESS", "at": "2026-01-02T03:04:05+00:00"})
    (first,) = claim()
    assert json.loads(first.body) == {
        "type": "job.completed",
        "timestamp": "2026-01-02T03:04:05+00:00",
        "data": {"public_id": public_id(made.job_id), "job_id": 7, "status": "SUCCESS"},
    }
    WebhookDelivery.objects.update(next_attempt_at=clock.now() - timedelta(seconds=1), facts={})
    (second,) = claim()
    assert (second.message_id, second.body, second.attempts) == (f"msg_{made.message_id.hex}", first.body, 2)


def test_secrets_in_reports_are_masked() -> None:
    DeliveryFactory(facts={"message": "no login: password=hunter2", "target": "https://u:hunter2@host/"})
    assert "hunter2" not in claim()[0].body


def test_a_delivered_message_is_written_and_reported_once() -> None:
    made = DeliveryFactory()
    (message,) = claim()
    assert settle(message, delivered=True, status=200) == "DELIVERED"
    assert settle(message, delivered=True, status=200) == ""
    found = row()
    assert (found.status, found.attempts, found.response_status, found.error) == ("DELIVERED", 1, 200, "")
    assert found.finished_at is not None
    assert Job.objects.get().webhook_sent is True
    assert events() == ["job.webhook.delivered"]
    assert JobEvent.objects.get().data["message_id"] == f"msg_{made.message_id.hex}"


def test_a_failed_delivery_is_retried_later_and_given_up_in_the_end(settings: Any) -> None:
    settings.JOBQUEUE = {"WEBHOOK_MAX_ATTEMPTS": 3}
    DeliveryFactory()
    for least in (5, 30):
        (message,) = claim()
        assert settle(message, status=500, error="The receiver returned status 500.") == "PENDING"
        assert least - 1 <= (row().next_attempt_at - clock.now()).total_seconds() <= least * 1.25 + 1
        assert events() == []
        WebhookDelivery.objects.update(next_attempt_at=clock.now() - timedelta(seconds=1))
    (message,) = claim()
    assert settle(message, status=500, error="The receiver returned status 500.") == "FAILED"
    assert (row().status, row().attempts, row().error) == ("FAILED", 3, "The receiver returned status 500.")
    assert events() == ["job.webhook.failed"]
    assert Job.objects.get().webhook_sent is False


def test_a_final_answer_ends_it_at_once_and_a_receiver_may_ask_for_time() -> None:
    DeliveryFactory()
    (message,) = claim()
    settle(message, status=503, retry_after=1000.0)
    assert 990 < (row().next_attempt_at - clock.now()).total_seconds() < 1251
    WebhookDelivery.objects.update(next_attempt_at=clock.now() - timedelta(seconds=1))
    assert settle(claim()[0], final=True, status=410) == "FAILED"


def test_a_sender_whose_time_is_over_writes_nothing() -> None:
    DeliveryFactory()
    (late,) = claim()
    WebhookDelivery.objects.update(next_attempt_at=clock.now() - timedelta(seconds=1))
    (other,) = claim()
    assert settle(late, final=True) == ""
    assert settle(other, delivered=True, status=200) == "DELIVERED"
    assert outbox.redeliver(row().pk)
    claim()  # the same number of attempts as that of the late one
    assert settle(late, final=True) == ""
    assert events() == ["job.webhook.delivered"]


def test_a_message_of_a_deleted_job_is_still_delivered() -> None:
    DeliveryFactory()
    Job.objects.all().erase()
    (message,) = claim()
    assert settle(message, delivered=True, status=200) == "DELIVERED"


def test_only_what_has_ended_is_sent_again_with_the_same_id_and_all_attempts() -> None:
    made = DeliveryFactory()
    assert not outbox.redeliver(made.pk)
    settle(claim()[0], final=True)
    assert outbox.redeliver(made.pk)
    found = row()
    assert (found.status, found.attempts, found.message_id, found.finished_at) == ("PENDING", 0, made.message_id, None)
    assert claim()[0].message_id == f"msg_{made.message_id.hex}"
    assert not outbox.redeliver(0)


@pytest.mark.postgresql
def test_a_row_that_is_locked_is_passed_over(rival: Any) -> None:
    locked, free = DeliveryFactory(), DeliveryFactory()
    with rival.transaction():
        rival.do(lambda: list(WebhookDelivery.objects.select_for_update().filter(pk=locked.pk)))
        assert [one.delivery_id for one in claim()] == [free.pk]


def test_a_job_stores_the_url_of_its_webhooks() -> None:
    from tests.tasks import add

    result = add.using(webhook_url="https://example.com/hook").enqueue(1, 2)
    assert Job.objects.get(pk=result.job_id).webhook_url == "https://example.com/hook"
    JobFactory()
    assert Job.objects.exclude(webhook_url="").count() == 1


def test_a_receiver_with_all_senders_busy_is_not_queried() -> None:
    DeliveryFactory.create_batch(3, url="http://silent.example/x")
    good = DeliveryFactory(url="http://good.example/x")
    asked: list[str] = []

    def room(origin: str) -> int:
        asked.append(origin)
        return 9

    assert [one.delivery_id for one in outbox.DeliveryClaimer().claim(10, room, ["http://silent.example"])] == [good.pk]
    assert asked == ["http://good.example"]


def test_a_row_with_an_invalid_url_delays_no_other() -> None:
    DeliveryFactory(url="http://[bad/x")
    DeliveryFactory()
    assert len(claim()) == 2


def test_the_times_of_attempts_are_a_setting(settings: Any) -> None:
    settings.JOBQUEUE = {"WEBHOOK_RETRY_SECONDS": [100, 1000]}
    DeliveryFactory()
    for least in (100, 1000, 1000):
        assert settle(claim()[0]) == "PENDING"
        assert least - 1 <= (row().next_attempt_at - clock.now()).total_seconds() <= least * 1.25 + 1
        WebhookDelivery.objects.update(next_attempt_at=clock.now() - timedelta(seconds=1))


def test_an_event_of_a_message_has_only_the_host_of_the_url() -> None:
    DeliveryFactory(url="https://hooks.example:8443/secret/path?token=hunter2")
    settle(claim()[0], final=True, status=410, error="The receiver returned status 410.")
    data = JobEvent.objects.get().data
    assert (data["host"], data["attempts"], data["response_status"]) == ("hooks.example:8443", 1, 410)
    assert "hunter2" not in str(data)
    assert "secret" not in str(data)


def test_a_message_about_a_message_is_never_made_whatever_the_queue_asks_for() -> None:
    Queue.objects.create(name="default", webhook_url="https://hooks.example/", webhook_events=["job.webhook.delivered", "job.failed"])
    DeliveryFactory()
    settle(claim()[0], delivered=True, status=200)
    assert (events(), WebhookDelivery.objects.count()) == (["job.webhook.delivered"], 1)


def test_each_attempt_is_kept_with_its_time_status_duration_and_response() -> None:
    delivery = DeliveryFactory()
    for number in range(1, outbox.MAX_HISTORY + 3):
        WebhookDelivery.objects.update(status="PENDING", attempts=0, next_attempt_at=clock.now() - timedelta(seconds=1))
        [message] = claim()
        assert settle(message, status=500, error="no", excerpt=f"answer {number}", milliseconds=number) == "PENDING"
    found = attempts_of(WebhookDelivery.objects.get(pk=delivery.pk))
    assert len(found) == outbox.MAX_HISTORY
    newest = found[-1]
    assert datetime.fromisoformat(newest.pop("at")) <= clock.now()
    shown = {"url": shown_url(delivery.url), "status": 500, "milliseconds": outbox.MAX_HISTORY + 2, "error": "no"}
    assert newest == {"attempt": 1, **shown, "excerpt": f"answer {outbox.MAX_HISTORY + 2}"}


@pytest.mark.parametrize("junk", ["x", 7, [7, None, {"attempt": "x", "at": 3, "excerpt": ["password=hunter2"]}], {"a": 1}])
def test_a_history_that_was_edited_by_hand_stops_no_attempt_and_no_page(junk: Any) -> None:
    delivery = DeliveryFactory(history=junk)
    [message] = claim()
    assert settle(message, delivered=True, status=204, milliseconds=3) == "DELIVERED"
    found = attempts_of(WebhookDelivery.objects.get(pk=delivery.pk))
    assert found[-1]["milliseconds"] == 3
    client = Client()
    client.force_login(get_user_model().objects.create_superuser("root"))
    page = client.get(f"/admin/jobqueue/webhookdelivery/{delivery.pk}/change/").content.decode()
    assert "3 ms" in page
    assert "hunter2" not in page
    assert client.get(f"/jobqueue/deliveries/{delivery.pk}/").json()["history"][-1]["status"] == 204
