"""Whatever runs concurrently with a cancel, the row, the events and the webhook messages agree, with one end."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jobqueue.core import event_names as names
from jobqueue.core.answers import Answer, Verdict
from jobqueue.core.targets import Target
from jobqueue.db import Lease, Mark, leases
from jobqueue.lifecycle import control, expire
from jobqueue.lifecycle.enqueue import JobSpec, enqueue
from jobqueue.lifecycle.finish import finish
from jobqueue.lifecycle.outcome import Failure, Kind, Outcome
from jobqueue.models import Job, JobEvent, Queue, WebhookDelivery
from tests.claiming import claim
from tests.events.story import judge
from tests.rivals import Rival

RACES = 1000
MAX_MILLISECONDS = 2.0
NO = Failure("builtins.ValueError", "ValueError: no", "")


def finished(lease: Lease, kind: Kind, target: str) -> None:
    """Write the end of a run as the finisher does: try again if the row or the target is locked."""
    now = time.monotonic()
    outcome = Outcome(lease, kind, now - 1, now, failure=NO, target=Target("", target) if target else None)
    while finish([outcome])[0].later:
        pass


RIVALS: dict[str, Callable[[Lease, str], Any]] = {
    "success": lambda lease, target: finished(lease, Kind.SUCCESS, target),
    "error": lambda lease, target: finished(lease, Kind.ERROR, target),
    "retry": lambda lease, target: finished(lease, Kind.RETRY, target),
    "interrupt": lambda lease, target: finished(lease, Kind.INTERRUPTED, target),
    "pause": lambda lease, target: control.pause(lease.job_id),
    "cancel": lambda lease, target: control.cancel(lease.job_id),
    "resume": lambda lease, target: control.resume(lease.job_id),
    "mark": lambda lease, target: leases.mark(Job.objects.database, [Mark(*lease, 1.0, 5, None, None)]),
    "expire": lambda lease, target: expire.expire_owner(f"worker-{lease.job_id}"),
}


@pytest.fixture
def second(rival: Rival) -> Iterator[Rival]:
    """Provide another client."""
    other = Rival()
    yield other
    other.close()


@pytest.mark.slow(seconds=50)
@pytest.mark.postgresql
def test_a_thousand_races_of_a_cancel_leave_one_story_each(rival: Rival, second: Rival) -> None:
    for party in (rival, second):
        party.do(Job.objects.database.rows, "SET synchronous_commit = off")
    Job.objects.database.rows("SET synchronous_commit = off")
    chance = random.Random()
    Queue.objects.create(name="default", webhook_url="https://hooks.example.org/")
    raced: Counter[str] = Counter()
    for number in range(RACES):
        name = [*RIVALS][number % len(RIVALS)]
        raced[name + race(chance, name, rival, second)] += 1
    # Both orders were seen, or it was no race.
    assert raced["successSUCCESS"] > 0, raced
    assert raced["retryRUNNING"] + raced["retryCANCELED"] > 0, raced


def race(chance: random.Random, name: str, rival: Rival, second: Rival) -> str:
    target = chance.choice(["", "customer:7"])
    job_id = enqueue(JobSpec("tests.tasks.add", target=target, max_attempts=9)).job_id
    [claimed] = claim(f"worker-{job_id}", (), 1, 30.0)
    assert claimed.id == job_id
    lease, barrier = Lease(job_id, claimed.lease_token), threading.Barrier(2)

    def begin(call: Callable[[], Any]) -> Any:
        barrier.wait(5)
        threading.Event().wait(chance.uniform(0, MAX_MILLISECONDS / 1000))
        return call()

    both = [rival.start(begin, lambda: control.cancel(job_id)), second.start(begin, lambda: RIVALS[name](lease, target))]
    stops = sum(stopped_idle(one.result(20)) for one in both)
    job = Job.objects.get(pk=job_id)
    status = str(job.status)
    agree(job, stops)
    if job.status == "RUNNING":  # it was asked to stop, and does
        finished(lease, Kind.INTERRUPTED, target)
    stops += stopped_idle(control.cancel(job_id))
    job.refresh_from_db()
    agree(job, stops)
    assert job.status in ("SUCCESS", "CANCELED")
    return status


def stopped_idle(answer: Any) -> bool:
    """Return whether a request stopped a job that did not run."""
    return isinstance(answer, Answer) and answer.verdict is Verdict.DONE and answer.status in ("PAUSED", "CANCELED")


def agree(job: Job, stops: int) -> None:
    told = list(JobEvent.objects.filter(job=job).order_by("pk").values_list("name", flat=True))
    judge(told, status=job.status, begun=job.started_at is not None, claims=1, idle_stops=stops)
    assert told.count(names.COMPLETED) + told.count(names.CANCELED) <= 1, told
    sent = list(WebhookDelivery.objects.filter(job=job).order_by("pk").values_list("event", flat=True))
    assert sent == [name for name in told if name in names.SENT_BY_DEFAULT]
    last = WebhookDelivery.objects.filter(job=job).order_by("pk").last()
    if last is not None and job.status in ("SUCCESS", "CANCELED"):
        assert last.facts["status"] == job.status
