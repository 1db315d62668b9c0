"""Concurrent requests: each answer of the REST API agrees with what happened to the job, and no request fails."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth import get_user_model
from django.db import connections
from django.test import Client

from jobqueue import TaskContext, fixed, task
from jobqueue.models import Job
from jobqueue.worker.process.supervisor import Supervisor
from tests.api.conftest import ROOT, url
from tests.factories import JobFactory

THREADS = 50


def storm(job: Job, *requests: tuple[str, str]) -> list[tuple[str, int, dict[str, Any]]]:
    """Send as many requests at the same moment, each from a thread with its own connection; return verb, status and body."""
    user = get_user_model().objects.create_user("root", is_superuser=True)
    barrier = threading.Barrier(THREADS)

    def send(number: int) -> tuple[str, int, dict[str, Any]]:
        method, verb = requests[number % len(requests)]
        client = Client()
        try:
            barrier.wait(20)
            response = client.generic(method, url(job, verb), headers={"Authorization": f"Bearer {user.username}"})
            return verb or "delete", response.status_code, response.json()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(send, range(THREADS)))


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("tokens")
@pytest.mark.parametrize("state", ["paused", "running", "error", "scheduled"])
def test_cancel_and_resume_of_one_job_agree_with_what_it_did(state: str) -> None:
    job = JobFactory(**{state: True}, target="t", **({"holds_target": True} if state == "error" else {}))
    answers = storm(job, ("POST", "cancel"), ("POST", "resume"))
    job.refresh_from_db()
    assert {status for _, status, _ in answers} <= {200, 202, 409}
    for verb, status, body in answers:
        told = body["error"]["status"] if status == 409 else body["status"]
        assert (verb, status, told) in {
            ("cancel", 200, "CANCELED"), ("cancel", 202, "RUNNING"), ("cancel", 409, "CANCELED"),
            ("resume", 200, "QUEUED"), ("resume", 200, "RUNNING"), ("resume", 409, "CANCELED"), ("resume", 409, "QUEUED"),
            ("resume", 409, "PENDING"), ("resume", 409, "RUNNING"),
        }  # fmt: skip
    counts = Counter((verb, status) for verb, status, _ in answers)
    if state == "running":
        # Each cancel is accepted, and each resume either took a request back or had none to take back.
        assert counts["cancel", 202] == THREADS / 2
        assert job.status == "RUNNING"
    else:
        # In any order, a cancel is final: one cancel won, and the state is the one that it returned.
        assert (counts["cancel", 200], counts["cancel", 409]) == (1, THREADS / 2 - 1)
        assert (job.status, job.holds_target) == ("CANCELED", False)
        assert counts["resume", 200] <= 1
    assert LogEntry.objects.count() == sum(status != 409 for _, status, _ in answers)


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("tokens")
def test_of_many_who_delete_one_job_one_does() -> None:
    job = JobFactory(error=True, target="t", holds_target=True)
    parked = JobFactory(waiting_for_target=True, target="t")
    answers = storm(job, ("DELETE", ""), ("POST", "cancel"))
    counts = Counter((verb, status) for verb, status, _ in answers)
    assert counts["delete", 200] == 1
    assert set(counts) <= {("delete", 200), ("delete", 404), ("cancel", 200), ("cancel", 404), ("cancel", 409)}
    assert counts["cancel", 200] <= 1
    assert not Job.objects.filter(pk=job.pk).exists()
    assert Job.objects.get(pk=parked.pk).status == "QUEUED"


RUNS: list[tuple[int, float]] = []
BEGUN = threading.Event()


@task(takes_context=True, max_attempts=5, retry_on=(OSError,), backoff=fixed(0.01))
def work(context: TaskContext, milliseconds: float, fails: bool) -> None:
    """Take a moment, and fail now and then."""
    RUNS.append((context.job_id, time.monotonic()))
    BEGUN.set()
    context.wait(milliseconds / 1000)
    if fails:
        raise OSError("not now")


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("tokens")
def test_a_cancel_at_any_moment_of_a_jobs_life_returns_the_right_verdict() -> None:
    """Around the start, the end and the retries of short jobs, in a whole worker: what was answered is what is stored."""
    RUNS.clear()
    BEGUN.clear()
    dice = random.Random(14)
    user = get_user_model().objects.create_user("root", is_superuser=True)
    ids = [work.enqueue(dice.uniform(0, 20), dice.random() < 0.5).job_id for _ in range(200)]
    dice.shuffle(ids)

    def cancel(job_id: int) -> tuple[int, int, float]:
        try:
            response = Client().post(f"{ROOT}jobs/{job_id}/cancel/", headers={"Authorization": f"Bearer {user.username}"})
            return job_id, response.status_code, time.monotonic()
        finally:
            connections.close_all()

    supervisor = Supervisor(once=True)
    worker = threading.Thread(target=supervisor.run, name="worker")
    worker.start()
    assert BEGUN.wait(20)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(cancel, ids))
    worker.join(60)
    assert not worker.is_alive()
    jobs = Job.objects.in_bulk()
    begun: dict[int, list[float]] = {}
    for job_id, when in RUNS:
        begun.setdefault(job_id, []).append(when)
    ends = {(status, jobs[job_id].status) for job_id, status, _ in answers}
    assert ends <= {(200, "CANCELED"), (202, "CANCELED"), (202, "SUCCESS"), (202, "ERROR"), (409, "SUCCESS")}
    assert {200, 409} <= {status for status, _ in ends}, "The requests came all before the jobs, or all after them."
    for job_id, status, answered in answers:
        assert status != 200 or all(when < answered for when in begun.get(job_id, ()))
        assert len(begun.get(job_id, ())) <= jobs[job_id].attempt
    assert not Job.objects.filter(cancel_requested=True).exists()
