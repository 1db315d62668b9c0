"""The finisher against the real database, one turn after the other."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection

from jobqueue import signals
from jobqueue.core.targets import Target
from jobqueue.lifecycle.finish import finish
from jobqueue.lifecycle.outcome import Failure, Kind, Outcome
from jobqueue.models import Job
from jobqueue.worker.reporting import finisher as module
from jobqueue.worker.reporting.finisher import LOCKED_SECONDS, Finisher
from jobqueue.worker.running.run import Run, Runs
from tests.factories import JobFactory
from tests.rivals import Rival
from tests.unchecked import refusing_changes
from tests.worker.parts import run_of

REFUSED = "{"  # no JSON, for either database


class Scene:
    """A finisher that no thread runs, and its reports."""

    def __init__(self, lease_seconds: float = 30.0) -> None:
        self.runs = Runs()
        self.told: list[bool] = []
        self.errors: list[BaseException] = []
        self.finisher = Finisher(self.runs, "worker-1", lease_seconds, self.told.append, lambda _, error, __: self.errors.append(error))

    def share(self, second: Finisher) -> None:
        """Make a finisher that shares its outcomes with a second one."""
        self.finisher = Finisher(
            self.runs, "worker-1", 30.0, self.told.append, lambda _, error, __: self.errors.append(error), second=second
        )

    def run(self, **columns: Any) -> Run:
        """Register the run of a running job."""
        job = JobFactory(running=True, **columns)
        run = run_of(lambda: None, number=job.pk, lease_token=1)
        self.runs.add([run])
        return run

    def put(self, run: Run, kind: Kind = Kind.SUCCESS, **more: Any) -> None:
        """End a run."""
        now = time.monotonic()
        run.began, run.ended = now - 1, now
        failure = Failure("builtins.ValueError", "ValueError: no", "") if kind in (Kind.ERROR, Kind.RETRY) else None
        self.finisher.put(run, Outcome(run.lease, kind, run.began, run.ended, failure=failure, **more))

    def turn(self) -> float | None:
        """Take one turn as the thread does: what it raises is reported, not passed on."""
        return self.finisher._attempt(self.finisher.turn)


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.fixture
def barred(rival: Rival) -> Iterator[Any]:
    """Provide a lock on the whole table, which makes each statement of jobqueue fail at once."""

    def bar() -> Any:
        connection.cursor().execute("SET lock_timeout = '20ms'")
        made = rival.transaction()
        made.__enter__()
        rival.do(lambda: connection.cursor().execute("LOCK TABLE jobqueue_job IN ACCESS EXCLUSIVE MODE"))
        return made

    yield bar
    connection.close()  # and with it the setting


def status(run: Run) -> str:
    return str(Job.objects.values_list("status", flat=True).get(pk=run.job.id))


@pytest.mark.django_db
def test_an_outcome_is_written_and_its_run_is_removed(scene: Scene) -> None:
    run, other = scene.run(), scene.run()
    scene.put(run, result="7")
    assert scene.finisher.unwritten == 1
    assert scene.turn() is None, "it rests until it is woken"
    job = Job.objects.get(pk=run.job.id)
    assert (job.status, job.result, job.lease_owner) == ("SUCCESS", 7, "")
    assert (scene.finisher.unwritten, list(scene.runs)) == (0, [other])
    assert (status(other), scene.finisher.done, scene.finisher.errors) == ("RUNNING", 1, 0)


@pytest.mark.django_db
def test_all_pending_reports_are_written_in_one_turn(scene: Scene) -> None:
    kinds = {Kind.SUCCESS: "SUCCESS", Kind.ERROR: "ERROR", Kind.RETRY: "PENDING", Kind.HANDED_BACK: "QUEUED", Kind.STOPPED: "PAUSED"}
    runs = {kind: scene.run() for kind in kinds}
    for kind, run in runs.items():
        scene.put(run, kind, delay_seconds=3.0 if kind is Kind.RETRY else 0.0)
    scene.turn()
    assert {kind: status(run) for kind, run in runs.items()} == kinds
    assert (len(scene.runs), scene.finisher.errors, scene.finisher.done) == (0, 1, 5)


@pytest.mark.django_db
def test_more_than_a_batch_is_written_turn_by_turn_without_a_rest(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH", 2)
    for run in [scene.run() for _ in range(5)]:
        scene.put(run)
    assert [scene.turn() for _ in range(3)] == [0.0, 0.0, None]
    assert set(Job.objects.values_list("status", flat=True)) == {"SUCCESS"}


@pytest.mark.django_db
def test_events_say_whether_a_job_waits_for_its_retry(scene: Scene) -> None:
    scene.put(scene.run())
    scene.turn()
    scene.put(scene.run(), Kind.RETRY, delay_seconds=3.0)
    scene.turn()
    assert scene.told == [False, True]


@pytest.mark.postgresql
def test_a_locked_row_is_tried_again_and_delays_no_job(scene: Scene, rival: Rival) -> None:
    locked, free, failed = scene.run(), scene.run(), scene.run()
    with rival.locking(Job.objects.get(pk=locked.job.id)):
        for run, kind in ((locked, Kind.SUCCESS), (free, Kind.SUCCESS), (failed, Kind.ERROR)):
            scene.put(run, kind)
        assert 0 < (scene.turn() or 0) <= LOCKED_SECONDS
        assert [status(run) for run in (locked, free, failed)] == ["RUNNING", "SUCCESS", "ERROR"]
        assert (list(scene.runs), scene.finisher.unwritten) == ([locked], 1), "its lease is renewed, and its outcome kept"
        scene.put(scene.run())
        pauses = [scene.turn() or 0 for _ in range(8)]
        assert (max(pauses), pauses[-1]) == (LOCKED_SECONDS, LOCKED_SECONDS), "a lock that is kept is asked for less often"
        assert (scene.finisher.unwritten, scene.finisher.done) == (1, 3)
    assert scene.turn() is None
    assert (status(locked), len(scene.runs)) == ("SUCCESS", 0)


@pytest.mark.django_db
def test_an_outcome_that_the_row_refuses_in_every_form_is_logged_as_that(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    run = scene.run()
    scene.put(run)
    with refusing_changes(f"old.id = {run.job.id}"):
        assert scene.turn() is None
    [told] = [text for text in caplog.messages if "stays RUNNING until its lease expires" in text]
    assert told.startswith(f"Job {run.job.id} stays")
    assert "never" in told
    assert "lease was lost" not in caplog.text


@pytest.mark.django_db
@pytest.mark.parametrize("kind", [Kind.SUCCESS, Kind.ERROR, Kind.RETRY, Kind.HANDED_BACK])
def test_the_outcome_of_a_lost_lease_changes_nothing_and_is_logged(scene: Scene, kind: Kind, caplog: pytest.LogCaptureFixture) -> None:
    run = scene.run()
    Job.objects.filter(pk=run.job.id).update(lease_token=2, lease_owner="worker-2")
    before = Job.objects.values().get(pk=run.job.id)
    scene.put(run, kind)
    with caplog.at_level(logging.WARNING, "jobqueue"):
        assert scene.turn() is None
    assert Job.objects.values().get(pk=run.job.id) == before
    assert (len(scene.runs), scene.finisher.errors) == (0, 0)
    told = f"Job {run.job.id}: the lease was lost, so the outcome of this run is discarded." in caplog.messages
    assert told == (kind is not Kind.HANDED_BACK), "a job that was to go back has gone back"


@pytest.mark.django_db(transaction=True)
def test_an_outcome_that_the_database_refuses_becomes_an_error_and_takes_no_other_with_it(scene: Scene) -> None:
    good, bad, last = scene.run(), scene.run(), scene.run()
    for run, result in ((good, "1"), (bad, REFUSED), (last, "2")):
        scene.put(run, result=result)
    assert scene.turn() is None
    assert [status(run) for run in (good, bad, last)] == ["SUCCESS", "ERROR", "SUCCESS"]
    assert Job.objects.get(pk=bad.job.id).message == "outcome could not be stored"
    assert (len(scene.runs), scene.finisher.errors, scene.errors) == (0, 1, [])


@pytest.mark.session
@pytest.mark.postgresql
def test_an_outcome_that_cannot_be_written_is_kept_and_written_later(scene: Scene, barred: Any) -> None:
    runs = [scene.run() for _ in range(3)]
    for run in runs:
        scene.put(run)
    table = barred()
    assert (scene.turn() or 0) > 0
    assert (len(scene.errors), scene.finisher.unwritten) == (1, 3)
    assert list(scene.runs) == runs, "their leases are renewed"
    table.__exit__(None, None, None)
    assert scene.turn() is None
    assert [status(run) for run in runs] == ["SUCCESS"] * 3
    assert (len(scene.runs), scene.finisher.done) == (0, 3)


@pytest.mark.session
@pytest.mark.postgresql
def test_an_outcome_that_cannot_be_written_for_three_leases_is_dropped(barred: Any, caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(lease_seconds=0.002)
    run = scene.run()
    scene.put(run)
    table = barred()
    scene.turn()
    assert scene.finisher.unwritten == 1
    connection.cursor().execute("SET lock_timeout = '20ms'")  # the failed turn has dropped the connection
    scene.turn()
    table.__exit__(None, None, None)
    assert (scene.finisher.unwritten, len(scene.runs)) == (0, 0)
    assert any("is dropped" in message for message in caplog.messages)
    assert status(run) == "RUNNING", "the lease runs out, and the job is recovered like any other"


@pytest.mark.django_db
def test_an_outcome_whose_acknowledgement_was_lost_counts_as_written(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    written, not_yet = scene.run(), scene.run()
    scene.put(written)
    scene.put(not_yet)
    finish([Outcome(written.lease, Kind.SUCCESS, 0.0, 1.0)])
    scene.finisher.failures = 1  # as after a turn whose commit was done, and whose answer never came
    assert scene.turn() is None
    assert [status(run) for run in (written, not_yet)] == ["SUCCESS"] * 2
    assert (scene.finisher.done, len(scene.runs)) == (2, 0)
    assert not [message for message in caplog.messages if "lease was lost" in message]


@pytest.mark.django_db
def test_a_written_outcome_is_announced_once_and_a_lost_one_never(scene: Scene) -> None:
    heard: list[tuple[int, str]] = []

    def receive(*, job_id: int, status: str, **_: Any) -> None:
        heard.append((job_id, status))
        raise RuntimeError("a receiver may fail")

    written, lost = scene.run(), scene.run()
    Job.objects.filter(pk=lost.job.id).update(lease_token=2)
    signals.job_settled.connect(receive)
    try:
        for run in (written, lost):
            scene.put(run)
        scene.turn()
        scene.turn()
    finally:
        signals.job_settled.disconnect(receive)
    assert heard == [(written.job.id, "SUCCESS")]
    assert scene.errors == []


@pytest.mark.django_db
def test_a_second_one_writes_successes_while_many_wait_and_what_needs_the_first_stays_with_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MANY", 3)
    second = Finisher(scene.runs, "worker-1", 30.0, scene.told.append, lambda _, error, __: scene.errors.append(error), "finisher-2")
    scene.share(second)
    runs = [scene.run() for _ in range(7)]
    for run in runs:
        scene.put(run)
    assert (second.unwritten, scene.finisher.unwritten) == (3, 7), "four stay, and it takes no more than those"
    failing, aimed = scene.run(), scene.run(target="shop", holds_target=True)
    scene.put(failing, Kind.ERROR)
    scene.put(aimed, target=Target("", "shop"))
    assert (second.unwritten, scene.finisher.unwritten) == (3, 9)
    assert (scene.turn(), second.unwritten, scene.finisher.unwritten) == (None, 3, 3)
    second._attempt(second.turn)
    assert [status(run) for run in (*runs, failing, aimed)] == ["SUCCESS"] * 7 + ["ERROR", "SUCCESS"]
    assert (scene.finisher.done, scene.finisher.errors, scene.finisher.unwritten, len(scene.runs)) == (9, 1, 0, 0)
    assert not scene.errors


@pytest.mark.django_db(transaction=True)
def test_the_second_one_writes_though_the_first_is_taking_over(scene: Scene) -> None:
    """It takes over nothing, so it does not wait for the lock under which the first one does."""
    run = scene.run()
    with scene.runs.handing_over:
        scene.put(run)
        assert scene.turn() is None
    assert status(run) == "SUCCESS"
