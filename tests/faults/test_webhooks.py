"""Webhooks of a real worker to real receivers, good and bad, and a worker that is killed between send and record."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone
from standardwebhooks import Webhook

from jobqueue.models import BackgroundJobLease, JobEvent, Queue, WebhookDelivery
from tests.faults import resolver, tasks
from tests.faults.harness import Workers, job_id, row, wait_until
from tests.webhooks import receivers
from tests.webhooks.receivers import SECRET, Answer, Receiver, says

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.django_db]
SETTINGS: dict[str, Any] = {
    "WEBHOOK_ALLOWED_HOSTS": [resolver.ALLOWED],
    "WEBHOOK_SECRET": SECRET,
    "WEBHOOK_TIMEOUT_SECONDS": 2,
    "WEBHOOK_RETRY_SECONDS": [2, 2, 300],
}
MANY = 1000


class Receivers:
    """Start receivers by name."""

    def __init__(self) -> None:
        self.by_name: dict[str, Receiver] = {}

    def start(self, name: str, answer: Answer, **options: Any) -> Receiver:
        self.by_name[name] = Receiver(answer, **options)
        return self.by_name[name]

    def close(self) -> None:
        for one in self.by_name.values():
            one.close()


@pytest.fixture
def farm() -> Iterator[Receivers]:
    made = Receivers()
    yield made
    made.close()


def delivery(job: Any) -> WebhookDelivery:
    return WebhookDelivery.objects.get(job_id=job_id(job))


def start_all(farm: Receivers, directory: Path) -> None:
    inside = farm.start("inside", says(200), place=(resolver.INSIDE, 0))
    farm.start("silent", receivers.silent)
    farm.start("dripping", receivers.one_byte_a_second)
    farm.start("huge", receivers.fifty_megabytes)
    farm.start("closing", receivers.closes)
    farm.start("bad tls", says(200), tls=receivers.self_signed(directory))
    farm.start("twice 500", says(500, 500, 200))
    farm.start("gone", says(410))
    farm.start("redirect", says(301, more=f"location: {inside.url}\r\n"))
    farm.start("rebind", says(200), place=(resolver.ALLOWED, inside.port))
    farm.start("good", says(200))


def test_bad_receivers_get_what_they_deserve_and_a_good_one_is_served_all_the_time(
    workers: Workers, farm: Receivers, tmp_path: Path
) -> None:
    start_all(farm, tmp_path)
    worker = workers.start(TASK_MODULES=["tests.faults.tasks", "tests.faults.resolver"], **SETTINGS).ready()
    urls = {name: one.url for name, one in farm.by_name.items()} | {
        "rebind": f"http://{resolver.NAME}:{farm.by_name['rebind'].port}/hook",
        "metadata": "http://169.254.169.254/latest",
    }
    jobs = {name: tasks.work.using(webhook_url=url).enqueue() for name, url in urls.items() if name != "good"}
    wait_until(lambda: WebhookDelivery.objects.count() == len(jobs), "all messages are in the outbox")
    # Messages of one receiver go in the order of their times: its own one would wait behind the whole crowd.
    wait_until(lambda: farm.by_name["silent"].requests, "the silent receiver has the message of its own job")
    crowd_in(urls["silent"])
    good, waits, pause = farm.by_name["good"], [], threading.Event()
    for number in range(1, 16):
        began = time.monotonic()
        tasks.work.using(webhook_url=good.url).enqueue()
        wait_until(lambda number=number: len(good.requests) == number, "the good receiver is served", 5)  # type: ignore[misc]
        waits.append(time.monotonic() - began)
        pause.wait(0.3)
    assert max(waits) < 4, waits
    wait_until(lambda: delivery(jobs["twice 500"]).status == "DELIVERED", "it arrives at the third attempt", 20)
    wait_until(lambda: all(delivery(job).attempts and delivery(job).error for job in told(jobs)), "every receiver was tried", 20)
    judge({name: delivery(job) for name, job in jobs.items()}, farm)
    assert WebhookDelivery.objects.filter(url=good.url, status="DELIVERED").count() == 15
    Webhook(SECRET).verify(good.requests[-1].body, good.requests[-1].headers)
    assert "Traceback" not in worker.text_without_failures
    worker.hurry()
    worker.wait()


def told(jobs: dict[str, Any]) -> list[Any]:
    return [job for name, job in jobs.items() if name not in ("twice 500", "rebind", "inside")]


def crowd_in(url: str) -> None:
    """Store many messages for one receiver, older than all other messages."""
    old = timezone.now() - timedelta(hours=1)
    made = [
        WebhookDelivery(message_id=uuid.uuid4(), job_id=0, event="job.completed", queue="default", url=url, next_attempt_at=old)
        for _ in range(MANY)
    ]
    WebhookDelivery.objects.bulk_create(made)


def judge(found: dict[str, WebhookDelivery], farm: Receivers) -> None:
    for name, error in {
        "silent": "No response within 2 s.",
        "dripping": "No response within 2 s.",
        "huge": "The receiver returned status 500.",
        "closing": "closed the connection",
        "bad tls": "CERTIFICATE_VERIFY_FAILED",
        "redirect": "redirects are not followed",
    }.items():
        assert (found[name].status, error in found[name].error) == ("PENDING", True), (name, found[name].error)
    assert (found["gone"].status, found["gone"].attempts, found["gone"].response_status) == ("FAILED", 1, 410)
    for name in ("inside", "metadata"):
        assert (found[name].status, "is not public" in found[name].error) == ("FAILED", True)
    assert (found["rebind"].status, farm.by_name["inside"].connections) == ("DELIVERED", 0)
    three = farm.by_name["twice 500"].requests
    assert len({(one.headers["webhook-id"], one.body) for one in three}) == 1
    assert len(three) == 3
    job = found["twice 500"].job_id
    assert row(job).webhook_sent
    assert list(JobEvent.objects.filter(job_id=job).order_by("id").values_list("name", flat=True))[-2:] == [
        "job.completed",
        "job.webhook.delivered",
    ]
    assert JobEvent.objects.filter(job_id=found["gone"].job_id, name="job.webhook.failed").exists()


def test_on_a_quiet_system_a_message_goes_as_soon_as_its_job_has_ended(workers: Workers, farm: Receivers) -> None:
    came: list[Any] = []

    def answer(client: Any, number: int) -> None:
        came.append(timezone.now())
        says(200)(client, number)

    good = farm.start("good", answer)
    worker = workers.start(**SETTINGS).ready()
    wait_until(
        lambda: BackgroundJobLease.objects.filter(job_name="deliver_webhooks").exclude(held_by_worker_id="").exists(), "the duty is led"
    )
    pause = threading.Event()
    pause.wait(1.5)  # it has polled, found nothing, and waits
    job = tasks.work.using(webhook_url=good.url).enqueue()
    wait_until(lambda: came, "the message arrives", 10)
    assert (came[0] - row(job_id(job)).finished_at).total_seconds() < 1  # the first one loads what sends it, too
    assert worker.stop() == 0


def test_a_worker_that_is_killed_between_send_and_mark_sends_the_same_again(workers: Workers, farm: Receivers) -> None:
    receiver = farm.start("stalls", lambda connection, number: (receivers.silent if number == 1 else says(200))(connection, number))
    settings = {**SETTINGS, "WEBHOOK_TIMEOUT_SECONDS": 5}
    first = workers.start(**settings).ready()
    job = tasks.work.using(webhook_url=receiver.url).enqueue()
    wait_until(lambda: receiver.requests, "the message has arrived")
    first.kill()
    assert delivery(job).status == "PENDING"
    second = workers.start(**settings).ready()
    wait_until(lambda: delivery(job).status == "DELIVERED", "it is sent again", 40)
    one, other = receiver.requests
    assert (one.headers["webhook-id"], one.body) == (other.headers["webhook-id"], other.body)
    assert row(job).webhook_sent
    assert JobEvent.objects.filter(job_id=job_id(job), name="job.webhook.delivered").count() == 1
    assert second.stop() == 0


def test_a_worker_that_is_killed_between_the_answer_and_the_mark_sends_the_same_again(
    workers: Workers, farm: Receivers, rival: Any
) -> None:
    held, answered = threading.Event(), threading.Event()

    def answer(client: Any, number: int) -> None:
        held.wait(10)
        says(200)(client, number)
        answered.set()

    receiver = farm.start("good", answer)
    first = workers.start(**SETTINGS).ready()
    job = tasks.work.using(webhook_url=receiver.url).enqueue()
    wait_until(lambda: receiver.requests, "the message has arrived")
    with rival.locking(row(job)):
        if connection.vendor == "sqlite":  # there a lock is that of the whole file, and it comes with a write
            rival.do(lambda: Queue.objects.create(name="lock"))
        held.set()
        assert answered.wait(10)
        pause = threading.Event()
        pause.wait(0.5)  # the worker wants to write down that it has arrived
        first.kill()
    assert (delivery(job).status, delivery(job).attempts) == ("PENDING", 1)
    second = workers.start(**SETTINGS).ready()
    wait_until(lambda: delivery(job).status == "DELIVERED", "it is sent again", 40)
    one, other = receiver.requests
    assert (one.headers["webhook-id"], one.body) == (other.headers["webhook-id"], other.body)
    assert JobEvent.objects.filter(job_id=job_id(job), name="job.webhook.delivered").count() == 1
    assert second.stop() == 0
