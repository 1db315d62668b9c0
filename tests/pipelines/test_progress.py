"""The progress of a running phase: exact, never decreasing within a run, written in the transaction of the job's own progress."""

from __future__ import annotations

import time
from typing import Any

import pytest

from jobqueue.core.phases import declared
from jobqueue.db import Claimed, Lease
from jobqueue.declared import registry
from jobqueue.lifecycle import phases
from jobqueue.lifecycle.finish import finish
from jobqueue.lifecycle.outcome import Kind
from jobqueue.models import Job, JobEvent, JobPhase
from jobqueue.worker.reporting.reporter import Reporter
from jobqueue.worker.running import judging, phase_store
from jobqueue.worker.running.run import Run, Runs
from tests.claiming import claim
from tests.pipelines import samples

pytestmark = pytest.mark.django_db
NAMES = [one.name for one in declared([samples.download, samples.process, samples.upload])]


class Scene:
    """A pipeline that has begun, and a reporter that no thread runs."""

    def __init__(self) -> None:
        samples.publish.enqueue("a")
        [job] = claim("worker-1", (), 1, 30.0)
        self.job: Claimed = job
        self.runs = Runs()
        self.reporter = Reporter(self.runs, lambda *_: None)
        self.run = Run(job, lambda run: None, lambda run: None)
        self.run.entry = registry.find(job.task)
        assert self.run.entry is not None
        self.pipeline = phase_store.begin(self.run, self.run.entry)
        self.run.began = time.monotonic()
        self.runs.add([self.run])
        self.pipeline._opened(phases.open_phases(Lease(job.id, job.lease_token), NAMES))

    def tell(self, percent: int, message: str | None = None) -> tuple[int, list[int]]:
        """Report progress, wait until it is written, and return what the job and its phases show."""
        self.run.report(percent, message)
        self.run.own_progress().marked_at = None
        self.reporter.turn()
        return self.shown()

    def shown(self) -> tuple[int, list[int]]:
        rows = JobPhase.objects.filter(job=self.job.id).order_by("position")
        return Job.objects.get(pk=self.job.id).progress, list(rows.values_list("progress", flat=True))

    def end_phase(self) -> None:
        done = self.pipeline._ended(None)
        self.pipeline._store.end_phase(done, self.pipeline._following, self.pipeline.after)
        self.pipeline._advance(done)


def test_the_job_shows_what_the_table_says() -> None:
    scene = Scene()
    assert scene.shown() == (0, [0, 0, 0])
    assert scene.tell(50) == (17, [50, 0, 0])
    scene.end_phase()
    assert scene.shown() == (33, [100, 0, 0])
    assert scene.tell(25) == (42, [100, 25, 0])
    scene.end_phase()
    assert scene.tell(80) == (93, [100, 100, 80])


def test_overall_progress_never_goes_back_within_a_run() -> None:
    scene = Scene()
    assert scene.tell(90, "nearly") == (30, [90, 0, 0])
    assert scene.tell(10, "again") == (30, [10, 0, 0])
    assert JobPhase.objects.get(job=scene.job.id, position=0).message == "again"


def test_progress_from_before_the_end_of_a_phase_is_not_written_after_it() -> None:
    scene = Scene()
    scene.run.report(50, None)
    scene.end_phase()
    scene.run.own_progress().marked_at = None
    scene.reporter.turn()
    assert scene.shown() == (33, [100, 0, 0])


def told() -> list[Any]:
    return [
        (data["progress"], data["message"]) if name == "job.progress" else name
        for name, data in JobEvent.objects.order_by("pk").values_list("name", "data")
        if name.startswith(("job.progress", "job.phase", "job.failed"))
    ]


def test_the_last_progress_of_a_phase_is_an_event_before_that_of_its_end(settings: Any) -> None:
    settings.JOBQUEUE = {"EVENT_LOG": "all"}
    scene = Scene()
    scene.tell(10, "first")
    scene.run.report(20, "second")
    scene.run.report(30, "last")
    for _ in range(2):  # its answer was lost, so it is done once more
        scene.pipeline._store.end_phase(scene.pipeline._ended(None), scene.pipeline._following, scene.pipeline.after)
    scene.pipeline._advance(scene.pipeline._ended(None))
    scene.run.own_progress().marked_at = None
    scene.reporter.turn()
    first = ["job.phase.started", (3, "first"), (10, "last"), "job.phase.completed", "job.phase.started"]
    assert told() == first
    assert Job.objects.get(pk=scene.job.id).message == "last"
    scene.tell(10, "in the second")
    scene.end_phase()
    assert told() == [*first, (37, "in the second"), "job.phase.completed", "job.phase.started"]


def test_the_last_progress_of_a_run_that_fails_is_an_event_before_that_of_its_end(settings: Any) -> None:
    settings.JOBQUEUE = {"EVENT_LOG": "all"}
    scene = Scene()
    scene.run.report(40, "nearly half")
    scene.run.close()
    finish([judging.failed(scene.run, Kind.ERROR, ValueError("no"))])
    assert told() == ["job.phase.started", (13, "nearly half"), "job.failed"]


def test_a_run_that_has_lost_its_lease_shows_nothing() -> None:
    scene = Scene()
    Job.objects.filter(pk=scene.job.id).update(lease_token=99)
    assert scene.tell(50) == (0, [0, 0, 0])


@pytest.mark.parametrize(("log", "wished"), [("all", True), ("lifecycle", False)])
def test_progress_is_an_event_where_the_project_wants_it(settings: Any, log: str, wished: bool) -> None:
    settings.JOBQUEUE = {"EVENT_LOG": log}
    scene = Scene()
    scene.tell(50, "half")
    scene.tell(50, "half")
    found: list[Any] = list(JobEvent.objects.filter(name="job.progress").values_list("data", flat=True))
    assert found == ([{"progress": 17, "message": "half"}] if wished else [])
