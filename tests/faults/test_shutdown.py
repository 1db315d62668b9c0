"""The orderly end of a worker, and the handling of everything that does not stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobqueue.lifecycle.expire import expire_stale_running_jobs
from jobqueue.models import WebhookDelivery, Worker
from tests.faults import tasks
from tests.faults.harness import Workers, job_id, row, wait_until, wait_until_started
from tests.webhooks import receivers
from tests.webhooks.receivers import SECRET, Receiver, says

pytestmark = [pytest.mark.faults, pytest.mark.django_db]
SETTINGS: dict[str, Any] = {
    "WEBHOOK_TIMEOUT_SECONDS": 30,
    "WEBHOOK_ALLOWED_HOSTS": ["127.0.0.1"],
    "WEBHOOK_SECRET": SECRET,
    "SHUTDOWN_GRACE_PERIOD_SECONDS": 1,
}


@pytest.fixture
def silent() -> Iterator[Receiver]:
    receiver = Receiver(receivers.silent)
    yield receiver
    receiver.close()


def in_order(text: str, *parts: str) -> bool:
    """Return whether a log says all of this, one after the other."""
    places = [text.find(part) for part in parts]
    assert -1 not in places, (parts[places.index(-1)], text)
    return places == sorted(places)


def test_the_end_goes_in_its_order_though_a_job_swallows_everything_and_a_receiver_is_silent(workers: Workers, silent: Receiver) -> None:
    worker = workers.start(**SETTINGS, DELIVERY_GRACE_SECONDS=1).ready()
    told = tasks.work.using(webhook_url=silent.url).enqueue()
    stubborn = workers.enqueue(tasks.swallow)
    wait_until_started(workers.witness, stubborn)
    wait_until(lambda: silent.requests, "the delivery is in flight")
    began = time.monotonic()
    worker.terminate()
    assert worker.wait(10) == 1
    assert time.monotonic() - began < 8
    assert in_order(
        worker.text,
        "Stopping: 1 jobs get up to 1 s to finish.",
        "Interrupting 1 jobs that have not finished.",
        f"The delivery to http://127.0.0.1:{silent.port} does not stop.",
        "Closing the listener and the other services.",
        f"Job {stubborn.job_id} (tests.faults.tasks.swallow) does not stop; it is handed back",
    )
    assert "Waiting up to 1 s for 1 deliveries in flight." in worker.text
    assert "Traceback" not in worker.text_without_failures
    assert (row(stubborn).status, row(stubborn).attempt) == ("QUEUED", 0)
    found = WebhookDelivery.objects.get(job_id=told.job_id)
    assert (found.status, found.error) == ("PENDING", "The worker ended before the receiver responded.")


def test_a_delivery_that_is_answered_in_time_is_written_and_the_end_is_clean(workers: Workers) -> None:
    go = threading.Event()

    def late(connection: Any, number: int) -> None:
        go.wait(10)
        says(200)(connection, number)

    receiver = Receiver(late)
    worker = workers.start(**SETTINGS).ready()
    told = tasks.work.using(webhook_url=receiver.url).enqueue()
    wait_until(lambda: receiver.requests, "the delivery is in flight")
    worker.terminate()
    wait_until(lambda: "Waiting up to 5 s for 1 deliveries in flight." in worker.text, "it waits for the delivery")
    go.set()
    assert worker.wait(5) == 0
    receiver.close()
    assert WebhookDelivery.objects.get(job_id=told.job_id).status == "DELIVERED"
    assert row(told).webhook_sent


def test_a_second_sigterm_waits_for_no_delivery(workers: Workers, silent: Receiver) -> None:
    worker = workers.start(**{**SETTINGS, "SHUTDOWN_GRACE_PERIOD_SECONDS": 60}, DELIVERY_GRACE_SECONDS=30).ready()
    tasks.work.using(webhook_url=silent.url).enqueue()
    waiting = workers.enqueue(tasks.wait)
    wait_until_started(workers.witness, waiting)
    wait_until(lambda: silent.requests, "the delivery is in flight")
    began = time.monotonic()
    worker.hurry()
    assert worker.wait(8) == 1
    assert time.monotonic() - began < 5
    assert (row(waiting).status, row(waiting).attempt) == ("QUEUED", 0)


def test_a_duty_that_hangs_is_named_and_holds_up_nothing(workers: Workers, tmp_path: Path) -> None:
    mark = tmp_path / "duty"
    worker = workers.start(**SETTINGS, environment={"FAULTS_HANGING_DUTY": str(mark)}).ready()
    wait_until(mark.exists, "the duty hangs")
    worker.terminate()
    assert worker.wait(8) == 1
    assert "The duty hanging does not stop." in worker.text


@pytest.mark.postgresql
def test_a_listener_that_hangs_is_named_and_holds_up_nothing(workers: Workers) -> None:
    worker = workers.start(**SETTINGS, TASK_MODULES=["tests.faults.tasks", "tests.faults.deaf"]).ready()
    job = workers.enqueue(tasks.work)
    wait_until(lambda: row(job).status == "SUCCESS", "it works without")
    worker.terminate()
    assert worker.wait(8) == 1
    assert "The listener does not stop." in worker.text


@pytest.mark.parametrize("left", ["swallow", "leave_a_thread", "work"])
def test_atexit_functions_run_for_a_moment_whatever_threads_are_left(workers: Workers, tmp_path: Path, left: str) -> None:
    mark = tmp_path / "mark"
    worker = workers.start(**SETTINGS).ready()
    registered = workers.enqueue(tasks.register_for_exit, str(mark))
    wait_until(lambda: row(registered).status == "SUCCESS", "it is registered")
    job = workers.enqueue(getattr(tasks, left))
    wait_until_started(workers.witness, job)
    began = time.monotonic()
    worker.terminate()
    assert worker.wait(10) == (1 if left == "swallow" else 0)
    assert time.monotonic() - began < 8
    assert mark.read_text() == "ran"


def test_a_job_is_not_blamed_where_its_worker_is_killed_while_it_stops(workers: Workers) -> None:
    """A container sends SIGKILL a few seconds after SIGTERM."""
    job = workers.enqueue(tasks.wait)
    for times in range(2):
        worker = workers.start(MAX_CRASHES=1).ready()
        wait_until(lambda number=times + 1: workers.witness.count("start", job_id(job)) == number, "it runs")  # type: ignore[misc]
        worker.terminate()
        wait_until(lambda: Worker.objects.filter(state="DRAINING").exists(), "the worker's row says that it stops", 2)
        worker.kill()
        wait_until(lambda: row(job).status == "QUEUED" or expire_stale_running_jobs(), "its lease has run out")
        Worker.objects.all().delete()
    assert (row(job).status, row(job).crashes, row(job).message) == ("QUEUED", 0, "worker lost while it was stopping")
