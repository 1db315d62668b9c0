"""The reporter against the real database, one turn after the other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.db import ProgrammingError, connection

from jobqueue.exceptions import InvalidArgumentValue
from jobqueue.models import Job
from jobqueue.worker.reporting.reporter import BEGUN_SECONDS, PAUSE_SECONDS, Reporter
from jobqueue.worker.running.run import Reason, Run, Runs
from tests.factories import JobFactory
from tests.rivals import Rival
from tests.worker.parts import PATIENCE_SECONDS, run_of


class Scene:
    """A reporter that no thread runs."""

    def __init__(self) -> None:
        self.runs = Runs()
        self.reporter = Reporter(self.runs, lambda *_: None)

    def run(self, age: float = 0.0, **columns: Any) -> Run:
        """Register a run that started this long ago."""
        job = JobFactory(running=True, **columns)
        plain = run_of(lambda: None, number=job.pk, lease_token=1)
        run = Run(plain.job, self.reporter.flush, plain.read_result)
        run.began = time.monotonic() - age
        self.runs.add([run])
        return run


@pytest.fixture
def scene() -> Scene:
    return Scene()


def row(run: Run) -> Job:
    return Job.objects.get(pk=run.job.id)


@pytest.mark.django_db
def test_the_start_of_a_run_is_written_once_it_is_no_short_one(scene: Scene, django_assert_num_queries: Callable[[int], Any]) -> None:
    short = scene.run(age=-5)  # so that it is short however busy the machine is
    with django_assert_num_queries(0):
        assert scene.reporter.turn() == BEGUN_SECONDS
    assert row(short).started_at is None
    long = [scene.run(age=5), scene.run(age=1)]
    scene.reporter.turn()
    began = [row(run).started_at for run in long]
    assert 3.5 < (began[1] - began[0]).total_seconds() < 4.5
    assert [row(run).first_started_at for run in long] == began
    with django_assert_num_queries(0):
        scene.reporter.turn()


@pytest.mark.django_db
def test_runs_that_have_not_begun_or_have_ended_show_nothing(scene: Scene, django_assert_num_queries: Callable[[int], Any]) -> None:
    waiting, ended = scene.run(age=5), scene.run(age=5)
    waiting.began, ended.ended = None, time.monotonic()
    with django_assert_num_queries(0):
        scene.reporter.turn()
    scene.runs.remove([waiting.lease, ended.lease])
    assert scene.reporter.turn() is None, "without runs it rests until it is woken"


@pytest.mark.django_db
def test_the_first_progress_is_written_at_once_and_the_next_after_a_pause(scene: Scene) -> None:
    run = scene.run()
    run.report(10, "first")
    scene.reporter.turn()
    assert (row(run).progress, row(run).message) == (10, "first")
    run.report(20, "second")
    scene.reporter.turn()
    assert row(run).progress == 10
    run.report(30, None)
    run.own_progress().marked_at = (run.own_progress().marked_at or 0) - PAUSE_SECONDS
    scene.reporter.turn()
    assert (row(run).progress, row(run).message) == (30, "second"), "the newest, and what was said last"


@pytest.mark.django_db
def test_saved_metadata_is_written_at_once_and_the_task_continues(scene: Scene) -> None:
    run = scene.run()
    own = run.own_progress()
    own.marked_at = own.dirty_since = time.monotonic()
    own.saved, own.metadata = threading.Event(), '{"cursor": 7}'
    scene.reporter.turn()
    assert row(run).metadata == {"cursor": 7}
    assert own.saved.is_set()


@pytest.mark.django_db(transaction=True)
def test_a_task_that_saves_waits_for_the_thread_that_writes(scene: Scene) -> None:
    run = scene.run()
    scene.reporter.start()
    try:
        run.save('{"cursor": 8}')
        assert row(run).metadata == {"cursor": 8}
    finally:
        scene.reporter.stop()
        assert scene.reporter.join(PATIENCE_SECONDS)


@pytest.mark.postgresql
def test_a_locked_row_is_passed_over_and_written_next_time(scene: Scene, rival: Rival) -> None:
    locked, free = scene.run(), scene.run()
    for run in (locked, free):
        own = run.own_progress()
        own.saved, own.metadata, own.dirty_since = threading.Event(), '{"cursor": 9}', time.monotonic()
    locked.report(50, None)
    with rival.locking(row(locked)):
        scene.reporter.turn()
        assert [row(run).metadata for run in (locked, free)] == [{}, {"cursor": 9}]
        assert [saved.is_set() for run in (locked, free) if (saved := run.own_progress().saved)] == [False, True]
    scene.reporter.turn()
    assert (row(locked).metadata, row(locked).progress) == ({"cursor": 9}, 50)
    saved = locked.own_progress().saved
    assert saved is not None
    assert saved.is_set()


@pytest.mark.django_db
def test_a_run_that_lost_its_lease_writes_nothing(scene: Scene) -> None:
    run = scene.run(age=5)
    Job.objects.filter(pk=run.job.id).update(lease_token=2)
    run.report(50, "lost")
    scene.reporter.turn()
    assert (row(run).progress, row(run).message, row(run).started_at) == (0, "", None)


@pytest.mark.parametrize("text", ["a\0b", "a\ud800b"])
@pytest.mark.django_db
def test_a_message_that_no_database_stores_is_cleaned(scene: Scene, text: str) -> None:
    run = scene.run()
    run.report(10, text)
    scene.reporter.turn()
    assert (row(run).progress, row(run).message) == (10, "a\N{REPLACEMENT CHARACTER}b")


@pytest.mark.django_db(transaction=True)
def test_values_that_the_database_refuses_are_dropped_and_the_others_are_written(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    good, bad, long = scene.run(), scene.run(age=3), scene.run(age=3)
    good.report(10, "good")
    bad.report(10, None)
    bad.own_progress().message = "a\ud800b"  # past what cleans it
    scene.reporter.turn()
    assert [row(run).message for run in (good, bad)] == ["good", ""]
    assert None not in [row(run).started_at for run in (bad, long)], "it shows that it began"
    assert f"Job {bad.job.id}: the database refuses its progress, message or metadata, which are dropped:" in caplog.text
    assert bad.own_progress().message is None, "the outcome must not contain it again"
    bad.report(20, "better")
    bad.own_progress().marked_at = (bad.own_progress().marked_at or 0) - PAUSE_SECONDS
    scene.reporter.turn()
    assert row(bad).message == "better"


@pytest.mark.django_db(transaction=True)
def test_a_task_whose_metadata_the_database_refuses_gets_an_error_and_can_save_others(scene: Scene) -> None:
    run = scene.run()
    patience = threading.Timer(PATIENCE_SECONDS, run.interrupt, [Reason.LOST])
    patience.start()
    scene.reporter.start()
    try:
        with pytest.raises(InvalidArgumentValue, match="the database refuses it"):
            run.save('{"half": "a\ud800b"}')  # without the check of its value
        run.save('{"cursor": 8}')
        assert row(run).metadata == {"cursor": 8}
    finally:
        patience.cancel()
        scene.reporter.stop()
        assert scene.reporter.join(PATIENCE_SECONDS)


@pytest.mark.django_db
def test_a_failure_that_is_no_fault_of_the_values_drops_none(scene: Scene) -> None:
    def fail(*_: Any) -> Any:
        raise ProgrammingError("no such table")

    runs = [scene.run(), scene.run()]
    for run in runs:
        run.report(10, "kept")
    with connection.execute_wrapper(fail), pytest.raises(ProgrammingError):
        scene.reporter.turn()
    assert [run.own_progress().message for run in runs] == ["kept", "kept"]
    scene.reporter.turn()
    assert [row(run).message for run in runs] == ["kept", "kept"]
