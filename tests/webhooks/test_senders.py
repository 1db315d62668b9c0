"""The duty and its senders with the database: deliveries, and receivers that delay deliveries to other ones."""

from __future__ import annotations

import sys
import threading
import time
from datetime import timedelta
from typing import Any

import pytest
from django.db import DataError, OperationalError
from django.utils import timezone

from jobqueue import InvalidOption, set_queue_webhook
from jobqueue.duties.base import Report
from jobqueue.duties.deliver_webhooks import PAUSE_SECONDS, QUIET_PAUSE_SECONDS, DeliverWebhooks
from jobqueue.models import JobEvent, WebhookDelivery
from jobqueue.webhooks import outbox, senders
from tests.factories import DeliveryFactory
from tests.webhooks import receivers
from tests.webhooks.conftest import Listen
from tests.webhooks.receivers import says

pytestmark = [pytest.mark.long, pytest.mark.django_db, pytest.mark.usefixtures("local")]


def run(duty: DeliverWebhooks, seconds: float = 5.0) -> list[Report]:
    """Run a duty until it asks for no more, as its thread does."""
    reports, until = [], time.monotonic() + seconds
    while time.monotonic() < until:
        reports.append(duty.run_once(timezone.now()))
        if not reports[-1].again:
            break
    return reports


def states() -> set[str]:
    return set(WebhookDelivery.objects.values_list("status", flat=True))


def test_messages_arrive_and_are_counted(listen: Listen) -> None:
    receiver = listen(says(200))
    made = DeliveryFactory.create_batch(50, url=receiver.url)
    assert sum(report.items for report in run(DeliverWebhooks())) == 50
    assert states() == {"DELIVERED"}
    assert {request.headers["webhook-id"] for request in receiver.requests} == {f"msg_{one.message_id.hex}" for one in made}
    assert JobEvent.objects.filter(name="job.webhook.delivered").count() == 50


def test_with_nothing_to_do_it_rests_until_the_next_is_due() -> None:
    duty = DeliverWebhooks()
    assert duty.run_once(timezone.now()) == Report(pause_seconds=QUIET_PAUSE_SECONDS)
    DeliveryFactory(next_attempt_at=timezone.now() + timedelta(seconds=0.3))
    assert 0 < (duty.run_once(timezone.now()).pause_seconds or 0) <= 0.3


def test_a_thousand_messages_to_a_silent_receiver_delay_no_other(listen: Listen) -> None:
    silent, good = listen(receivers.silent), listen(says(200))
    old = timezone.now() - timedelta(hours=1)
    first = DeliveryFactory(url=silent.url, next_attempt_at=old)
    WebhookDelivery.objects.bulk_create(
        [
            WebhookDelivery(message_id=first.message_id, job_id=0, event="x", queue="q", url=silent.url, next_attempt_at=old)
            for _ in range(999)
        ]
    )
    DeliveryFactory.create_batch(10, url=good.url)
    duty, began = DeliverWebhooks(), time.monotonic()
    while len(good.requests) < 10:
        duty.run_once(timezone.now())
        assert time.monotonic() - began < 3
    assert silent.connections <= 12
    duty.stop_waiting()
    duty.end()


def test_the_end_waits_for_what_is_under_way_and_writes_it(listen: Listen) -> None:
    go = threading.Event()

    def late(connection: Any, number: int) -> None:
        go.wait(5)
        says(200)(connection, number)

    DeliveryFactory(url=listen(late).url)
    duty = DeliverWebhooks()
    duty.run_once(timezone.now())
    assert duty.end_seconds == 7
    threading.Timer(0.3, go.set).start()
    assert duty.end() == []
    assert states() == {"DELIVERED"}


def test_the_end_names_who_does_not_answer_and_leaves_the_message_to_others(listen: Listen, settings: Any) -> None:
    settings.JOBQUEUE = {**settings.JOBQUEUE, "WEBHOOK_TIMEOUT_SECONDS": 10, "DELIVERY_GRACE_SECONDS": 0.3}
    receiver = listen(receivers.silent)
    DeliveryFactory(url=receiver.url)
    duty = DeliverWebhooks()
    duty.run_once(timezone.now())
    assert duty.end() == [f"delivery to http://127.0.0.1:{receiver.port}"]
    row = WebhookDelivery.objects.get()
    assert (row.status, row.error) == ("PENDING", "The worker ended before the receiver responded.")


def test_a_resolution_that_hangs_is_abandoned_and_counts_as_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    monkeypatch.setattr("jobqueue.webhooks.senders.PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr("jobqueue.webhooks.guard.socket.getaddrinfo", lambda *_, **__: go.wait(10) and [])
    DeliveryFactory(url="http://slow.example/")
    duty = DeliverWebhooks()
    run(duty)
    go.set()
    assert WebhookDelivery.objects.get().error == "The name of the receiver was not resolved in time."


def test_a_secret_that_hangs_is_given_up_and_named(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    go = threading.Event()
    monkeypatch.setattr("jobqueue.webhooks.senders.PATIENCE_SECONDS", 0.0)
    settings.JOBQUEUE = {**settings.JOBQUEUE, "WEBHOOK_SECRET": lambda *_: go.wait(10) and None}
    DeliveryFactory(url="http://127.0.0.1:9/")
    duty = DeliverWebhooks()
    run(duty)
    go.set()
    assert WebhookDelivery.objects.get().error == "WEBHOOK_SECRET did not return in time."


def test_if_the_extra_is_missing_the_process_never_leads_and_logs_the_reason(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert DeliverWebhooks().can_run()
    monkeypatch.setitem(sys.modules, "standardwebhooks", None)
    with caplog.at_level("INFO", "jobqueue"):
        assert not DeliverWebhooks().can_run()
    assert "pip install 'jobqueue[webhooks]'" in caplog.text


def test_an_answer_outlives_an_outage_of_the_database(listen: Listen, monkeypatch: pytest.MonkeyPatch) -> None:
    receiver = listen(says(200))
    DeliveryFactory(url=receiver.url)
    duty, write = DeliverWebhooks(), outbox.write_result

    def fail(*_: Any, **__: Any) -> str:
        raise OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(outbox, "write_result", fail)
    monkeypatch.setattr(senders, "is_outage", lambda error: True)
    with pytest.raises(OperationalError):
        run(duty)
    monkeypatch.setattr(outbox, "write_result", write)
    run(duty)
    assert (states(), len(receiver.requests)) == ({"DELIVERED"}, 1)


def test_an_answer_that_the_database_refuses_holds_up_no_other(
    listen: Listen, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    receiver = listen(says(200))
    bad, good = DeliveryFactory(url=receiver.url), DeliveryFactory(url=receiver.url)
    write = outbox.write_result

    def fail(message: Any, **answer: Any) -> str:
        if message.delivery_id == bad.pk:
            raise DataError("no such text")
        return write(message, **answer)

    monkeypatch.setattr(outbox, "write_result", fail)
    run(DeliverWebhooks())
    good.refresh_from_db()
    bad.refresh_from_db()
    assert (good.status, bad.status) == ("DELIVERED", "PENDING")
    assert "cannot be written; the webhook is sent again" in caplog.text


def test_a_receiver_that_does_not_answer_gets_one_sender_until_it_answers(listen: Listen, settings: Any) -> None:
    settings.JOBQUEUE = {**settings.JOBQUEUE, "WEBHOOK_TIMEOUT_SECONDS": 0.3, "WEBHOOK_RETRY_SECONDS": [60]}
    mute = threading.Event()

    def answer(connection: Any, number: int) -> None:
        (receivers.silent if mute.is_set() else says(200))(connection, number)

    receiver = listen(answer)
    DeliveryFactory.create_batch(2, url=receiver.url)
    duty = DeliverWebhooks()
    duty.run_once(timezone.now())
    assert duty._senders.in_flight <= 1, "it has not answered yet"
    run(duty)
    receiver.connections = 0
    mute.set()
    DeliveryFactory.create_batch(12, url=receiver.url)
    duty.run_once(timezone.now())
    assert duty._senders.in_flight == 4
    began = time.monotonic()
    while receiver.connections < 6:
        duty.run_once(timezone.now())
        assert duty._senders.in_flight <= (4 if receiver.connections <= 4 else 1)
        assert time.monotonic() - began < 5
    mute.clear()
    while WebhookDelivery.objects.filter(status="DELIVERED").count() < 5:
        duty.run_once(timezone.now())
        assert time.monotonic() - began < 15
    duty.end()


def test_very_many_silent_receivers_leave_senders_for_those_that_answer(listen: Listen, settings: Any) -> None:
    settings.JOBQUEUE = {**settings.JOBQUEUE, "WEBHOOK_TIMEOUT_SECONDS": 0.5, "WEBHOOK_RETRY_SECONDS": [60]}
    for url in [listen(receivers.silent).url for _ in range(40)]:
        DeliveryFactory.create_batch(12, url=url)
    duty = DeliverWebhooks()
    until = time.monotonic() + 30
    tried = WebhookDelivery.objects.filter(attempts=1).values("url").distinct()
    while tried.count() < 33 and time.monotonic() < until:
        duty.run_once(timezone.now())
    assert tried.count() >= 33
    good = listen(says(204))
    message = DeliveryFactory(url=good.url)
    while message.status != "DELIVERED" and time.monotonic() < until:
        duty.run_once(timezone.now())
        message.refresh_from_db()
    assert message.status == "DELIVERED"
    assert WebhookDelivery.objects.filter(pk__lt=message.pk, status="PENDING", attempts=0).count() > 20, "older ones still wait"
    duty.end()


def test_a_receiver_that_times_out_gets_no_message_for_a_while_which_doubles(listen: Listen, settings: Any) -> None:
    settings.JOBQUEUE = {**settings.JOBQUEUE, "WEBHOOK_TIMEOUT_SECONDS": 0.2, "WEBHOOK_RETRY_SECONDS": [60]}
    DeliveryFactory.create_batch(5, url=listen(receivers.silent).url)
    duty, until, began = DeliverWebhooks(), time.monotonic() + 5, []
    while len(began) < 3 and time.monotonic() < until:
        duty.run_once(timezone.now())
        if WebhookDelivery.objects.filter(attempts=1).count() > len(began):
            began.append(time.monotonic())
    assert began[1] - began[0] >= senders.BACK_OFF_SECONDS
    assert began[2] - began[1] >= 2 * senders.BACK_OFF_SECONDS
    duty.stop_waiting()
    duty.end()


@pytest.mark.parametrize("leads_anew", [False, True])
def test_a_crowd_of_new_silent_receivers_delays_no_receiver_that_has_answered_before(
    listen: Listen, settings: Any, *, leads_anew: bool
) -> None:
    settings.JOBQUEUE = {**settings.JOBQUEUE, "WEBHOOK_TIMEOUT_SECONDS": 3}
    good, duty = listen(says(204)), DeliverWebhooks()
    DeliveryFactory(url=good.url)
    run(duty)
    old = timezone.now() - timedelta(hours=1)
    for url in [listen(receivers.silent).url for _ in range(40)]:
        DeliveryFactory.create_batch(3, url=url, next_attempt_at=old)
    duty = DeliverWebhooks() if leads_anew else duty
    began = time.monotonic()
    while duty._senders.in_flight < 24 and time.monotonic() - began < 1:
        duty.run_once(timezone.now())
    message = DeliveryFactory(url=good.url)
    while message.status != "DELIVERED" and time.monotonic() - began < 4:
        duty.run_once(timezone.now())
        message.refresh_from_db()
    assert time.monotonic() - began < 2, "before the time of one attempt is over"
    assert (message.status, duty._senders.in_flight) == ("DELIVERED", 24)
    duty.stop_waiting()
    duty.end()


def test_silent_receivers_whose_messages_wait_each_get_a_sender_beside_one_with_very_many(listen: Listen, settings: Any) -> None:
    settings.JOBQUEUE = {**settings.JOBQUEUE, "WEBHOOK_TIMEOUT_SECONDS": 0.3, "WEBHOOK_RETRY_SECONDS": [60]}
    first, second = listen(receivers.silent), listen(receivers.silent)
    duty, old = DeliverWebhooks(), timezone.now() - timedelta(hours=1)
    for one in (first, second):
        DeliveryFactory(url=one.url)
    run(duty)
    DeliveryFactory.create_batch(60, url=first.url, next_attempt_at=old)
    DeliveryFactory(url=second.url)
    began, most = time.monotonic(), 0
    while most < 2 and time.monotonic() - began < 5:
        duty.run_once(timezone.now())
        most = max(most, duty._senders.in_flight)
    assert most == 2, "one attempt for each"
    duty.stop_waiting()
    duty.end()


def test_unsigned_messages_are_logged_once(listen: Listen, settings: Any, caplog: pytest.LogCaptureFixture) -> None:
    settings.JOBQUEUE = {"WEBHOOK_ALLOWED_HOSTS": ["127.0.0.0/8"]}
    DeliveryFactory.create_batch(3, url=listen(says(200)).url)
    run(DeliverWebhooks())
    assert caplog.text.count("are sent unsigned") == 1


@pytest.mark.parametrize("name", ["WEBHOOK_HTTPS_ONLY", "WEBHOOK_SIGNED_ONLY"])
def test_plain_http_and_unsigned_messages_can_be_refused(listen: Listen, settings: Any, name: str) -> None:
    settings.JOBQUEUE = {**settings.JOBQUEUE, "WEBHOOK_SECRET": None, name: True}
    receiver = listen(says(200))
    made = DeliveryFactory(url=receiver.url)
    run(DeliverWebhooks(), 2)
    made.refresh_from_db()
    assert not receiver.requests
    assert name in made.error
    final = name == "WEBHOOK_HTTPS_ONLY"
    assert made.status == ("FAILED" if final else "PENDING"), "a secret may still be set; a URL stays as it is"
    if final:
        with pytest.raises(InvalidOption, match="WEBHOOK_HTTPS_ONLY"):
            set_queue_webhook("mail", url="http://example.com/hook")
        set_queue_webhook("mail", url="https://example.com/hook")


def test_with_nothing_to_do_it_asks_seldom_and_once(django_assert_num_queries: Any) -> None:
    duty = DeliverWebhooks()
    with django_assert_num_queries(1):
        assert duty.run_once(timezone.now()).pause_seconds == QUIET_PAUSE_SECONDS


def test_after_a_job_has_ended_here_it_polls_closely(django_assert_num_queries: Any) -> None:
    duty = DeliverWebhooks()
    duty.notify()
    with django_assert_num_queries(1):
        assert duty.run_once(timezone.now()).pause_seconds == PAUSE_SECONDS


def test_deliveries_for_a_busy_receiver_are_not_read_all_the_time(listen: Listen, monkeypatch: pytest.MonkeyPatch) -> None:
    DeliveryFactory.create_batch(10, url=listen(receivers.silent).url)
    duty, looks, look = DeliverWebhooks(), [], outbox.DeliveryClaimer.claim
    monkeypatch.setattr(outbox.DeliveryClaimer, "claim", lambda *args: looks.append(args) or look(*args))
    began = time.monotonic()
    while time.monotonic() - began < 0.9:
        duty.run_once(timezone.now())
    assert len(looks) <= 3
    duty.notify()
    duty.run_once(timezone.now())
    assert len(looks) <= 4
    duty.stop_waiting()
    duty.end()
