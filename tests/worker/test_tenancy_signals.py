"""Receivers of signals run in the context of the job's tenant; a context that fails stops no signal of another job."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.dispatch import Signal
from django.utils import timezone

from jobqueue import signals
from jobqueue.duties.expire_stale_running_jobs import ExpireStaleRunningJobs
from jobqueue.lifecycle.outcome import Kind, Outcome
from jobqueue.models import Job
from jobqueue.worker.process.identity import Identity
from jobqueue.worker.process.maintenance import Maintenance
from jobqueue.worker.reporting.finisher import Finisher
from jobqueue.worker.running.executor import execute
from jobqueue.worker.running.run import Runs
from tests import tasks
from tests.factories import JobFactory
from tests.worker.parts import run_of
from tests.worker.places import Place, steps, tenant

pytestmark = pytest.mark.usefixtures("place")


class Ear:
    """Keep in whose place a receiver of a signal was called."""

    def __init__(self, signal: Signal) -> None:
        self.heard: list[str] = []
        signal.connect(self.hear, weak=False)

    def hear(self, **_: Any) -> None:
        self.heard.append(tenant())


@pytest.fixture
def listen() -> Iterator[Any]:
    """Return a function that connects a receiver to a signal; disconnect it at the end."""
    ears: list[tuple[Signal, Ear]] = []

    def begin(signal: Signal) -> Ear:
        ears.append((signal, Ear(signal)))
        return ears[-1][1]

    yield begin
    for signal, ear in ears:
        signal.disconnect(ear.hear)


class Scene:
    """A finisher that no thread runs."""

    def __init__(self) -> None:
        self.runs = Runs()
        self.finisher = Finisher(self.runs, "worker-1", 30.0, lambda retrying: None, lambda *_: None)

    def end(self, *names: str) -> None:
        """End a run of a job of each tenant, in one batch."""
        for name in names:
            job = JobFactory(running=True, tenant=name)
            ending = run_of(lambda: None, number=job.pk, tenant=name, task="tests.tasks.add")
            ending.entry = registered(ending)
            self.runs.add([ending])
            now = time.monotonic()
            self.finisher.put(ending, Outcome(ending.lease, Kind.SUCCESS, now, now, result="1"))
        self.finisher.turn()
        assert Job.objects.filter(status="SUCCESS").count() == len(names)
        assert len(self.runs) == 0


def registered(run: Any) -> Any:
    """Return the run's entry with a task that signals can name."""
    return dataclasses.replace(run.entry, task=tasks.add)


@pytest.mark.django_db
@pytest.mark.parametrize("name", ["job_settled", "task_finished"])
def test_receivers_of_an_end_run_in_the_context_of_its_tenant(listen: Any, name: str) -> None:
    ear = listen(getattr(signals, name))
    Scene().end("acme", "", "globex")
    assert ear.heard == ["acme", "", "globex"]
    assert (steps(), tenant()) == (["enter acme", "leave acme", "enter globex", "leave globex"], "")


@pytest.mark.django_db
def test_receivers_of_a_start_run_in_the_context_of_its_tenant(listen: Any) -> None:
    ear = listen(signals.task_started)
    job = JobFactory(running=True, tenant="acme")
    starting = run_of(lambda: None, number=job.pk, tenant="acme")
    starting.entry = registered(starting)
    starting.read_result = lambda run: None  # type: ignore[method-assign]
    assert execute(starting, hygienic=False).kind is Kind.SUCCESS
    assert ear.heard == ["acme"]


@pytest.mark.django_db
def test_receivers_of_a_loss_of_a_worker_run_in_the_context_of_the_jobs_tenant(listen: Any) -> None:
    ear = listen(signals.job_lost)
    for name in ("acme", "", "globex"):
        JobFactory(expired=True, tenant=name)
    sweep(chores())
    assert ear.heard == ["acme", "", "globex"]


@pytest.mark.django_db
def test_a_log_line_needs_no_context(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    JobFactory(expired=True, tenant="acme")
    sweep(chores())
    Scene().end("acme")
    assert Place.told == []
    assert len([record for record in caplog.records if record.name == "jobqueue"]) == 2


@pytest.mark.django_db
@pytest.mark.parametrize("name", ["job_settled", "task_finished"])
@pytest.mark.parametrize("what", ["make", "enter", "leave"])
def test_a_context_that_fails_stops_neither_the_finisher_nor_the_signals_of_other_jobs(
    listen: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, name: str, what: str
) -> None:
    ear = listen(getattr(signals, name))
    Place.fail_at[what, "acme"] = LookupError("no such tenant")
    monkeypatch.setattr("jobqueue.worker.running.tenancy.hygiene.close_all", lambda: None)  # the test keeps its connection
    Scene().end("acme", "globex")
    assert ear.heard[-1] == "globex"
    assert len(ear.heard) == (2 if what == "leave" else 1)
    assert any(
        "a signal of its end was not sent: jobqueue.exceptions.TenantContextFailed: The context of tenant 'acme'" in record.getMessage()
        for record in caplog.records
    )


@pytest.mark.django_db
def test_a_context_that_fails_stops_no_recovery(listen: Any, caplog: pytest.LogCaptureFixture) -> None:
    ear = listen(signals.job_lost)
    Place.fail_at["enter", "acme"] = LookupError("no such tenant")
    jobs = [JobFactory(expired=True, tenant=name, recovery="hold") for name in ("acme", "globex")]
    maintenance = chores()
    sweep(maintenance)
    assert (ear.heard, maintenance.errors) == (["globex"], 2)
    assert f"Job {jobs[0].pk}: a signal of its end was not sent" in caplog.text


def chores() -> Maintenance:
    """Return the maintenance of a process, run only by the test."""
    return Maintenance(
        Identity(),
        show=lambda: None,
        stuck=lambda: 0,
        found=lambda: None,
        on_error=lambda *_: None,
    )


def sweep(maintenance: Maintenance) -> None:
    """Recover lost jobs as the duty does, and send their signals."""
    ExpireStaleRunningJobs(lambda: None, maintenance.announce, lambda: 0.0).run_once(timezone.now())
