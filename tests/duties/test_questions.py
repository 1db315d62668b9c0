"""The questions of the duties, which a worker sends in one statement: what they find, and how the shared thread uses the answers."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError, connection
from django.test.utils import CaptureQueriesContext

from jobqueue import clock
from jobqueue.db import questions
from jobqueue.duties.base import Duty
from jobqueue.duties.builtin import builtin
from jobqueue.models import BulkAction, Job, Schedule, Worker
from jobqueue.worker.duties.duty_thread import DutyThread
from jobqueue.worker.duties.runner import DutyRunner
from tests.duties.asking import seconds_to_work
from tests.factories import DeliveryFactory, JobFactory, ScheduleFactory, ahead

pytestmark = pytest.mark.django_db

WORK: dict[str, tuple[Callable[[], object], str]] = {
    "due": (lambda: JobFactory(due=True), "promote_due_jobs"),
    "waits": (lambda: JobFactory(waiting_for_children=True), "promote_due_jobs"),
    "parked": (lambda: JobFactory(waiting_for_target=True), "release_parked_targets"),
    "expired": (lambda: JobFactory(expired=True), "expire_stale_running_jobs"),
    "late": (lambda: JobFactory(expires_at=ahead(seconds=-1)), "expire_stale_running_jobs"),
    "schedule": (lambda: ScheduleFactory(next_at=clock.now()), "enqueue_scheduled_jobs"),
    "dead": (
        lambda: Worker.objects.create(pk=f"{7:032x}", host="h", pid=1, heartbeat_at=clock.now() - timedelta(days=2)),
        "forget_dead_workers",
    ),
    "bulk": (lambda: BulkAction.objects.create(verb="resume", query="status:ERROR", upto_id=1), "run_bulk_actions"),
    "delivery": (lambda: DeliveryFactory(next_attempt_at=ahead(seconds=-1)), "deliver_webhooks"),
}


def made() -> dict[str, Duty]:
    """Return the built-in duties of one process that ask, after their first runs."""
    duties = {name: make() for name, make in builtin(lambda: None, lambda lost: None, lambda: 0.0).items()}
    duties["enqueue_scheduled_jobs"].run_once(clock.now())
    return {name: duty for name, duty in duties.items() if duty.questions()}


class Scene:
    """The shared thread of a worker, whose turns the test takes, with the thread of a long duty."""

    def __init__(self) -> None:
        self.released: list[int] = []
        self.errors: list[BaseException] = []
        self.thread, self.long = self._thread("short duties", asks=True), self._thread("long", asks=False)
        self.runners = {name: DutyRunner(duty, None, "host:1", lambda: self.released.append(1)) for name, duty in made().items()}
        for runner in self.runners.values():
            (self.thread if runner.duty.is_short else self.long).add(runner)
        self.thread.others = (self.long,)

    def _thread(self, name: str, *, asks: bool) -> DutyThread:
        return DutyThread(name, clock.now, lambda failed, error, failures: self.errors.append(error), asks=asks)

    def turn(self) -> list[str]:
        """Take a turn with every duty due; return the statements."""
        for runner in self.runners.values():
            runner.next_at = 0.0
        with CaptureQueriesContext(connection) as queries:
            self.thread.turn()
        return [one["sql"] for one in queries.captured_queries]


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    # The connection is that of the test.
    monkeypatch.setattr("jobqueue.db.hygiene.close_all", lambda: None)
    monkeypatch.setattr("jobqueue.db.hygiene.close_broken", lambda alias: None)
    monkeypatch.setattr("jobqueue.db.hygiene.end_transactions", list)
    return Scene()


@pytest.mark.parametrize("kind", sorted(WORK))
def test_a_duty_has_work_exactly_when_there_is_something_to_do(kind: str) -> None:
    duties = made()
    assert {seconds_to_work(duty) for duty in duties.values()} == {None}
    make, name = WORK[kind]
    make()
    found = {name: seconds for name, duty in duties.items() if (seconds := seconds_to_work(duty)) is not None}
    assert set(found) == {name}
    assert found[name] <= 0


@pytest.mark.parametrize("name", ["promote_due_jobs", "deliver_webhooks"])
def test_what_is_due_later_is_waited_for_until_then(name: str) -> None:
    JobFactory(scheduled=True, run_at=ahead(seconds=30))
    DeliveryFactory(next_attempt_at=ahead(seconds=30))
    assert 25 < (seconds_to_work(made()[name]) or 0) <= 30


def test_without_work_all_short_duties_need_one_statement(scene: Scene) -> None:
    assert len(scene.turn()) == 1
    assert all(runner.metadata["runs"] == 1 for runner in scene.runners.values() if runner.duty.is_short), "each counts as done"
    assert not scene.released


def test_only_the_duties_with_work_run(scene: Scene) -> None:
    due, parked = JobFactory(due=True), JobFactory(waiting_for_target=True)
    statements = scene.turn()
    assert {due.pk, parked.pk} == set(Job.objects.filter(status="QUEUED").values_list("pk", flat=True))
    assert len(scene.released) == 2
    assert not any("jobqueue_schedule" in sql for sql in statements[1:])


def test_the_shared_thread_wakes_a_long_duty_that_has_work(scene: Scene) -> None:
    runner = scene.runners["deliver_webhooks"]
    scene.turn()
    runner.next_at = resting = float("inf")
    scene.thread._asked_at = 0.0
    scene.thread.turn()
    assert (runner.next_at, scene.long._wake.is_set()) == (resting, True), "it has been woken only by its start"
    scene.long._wake.clear()
    DeliveryFactory(next_attempt_at=ahead(seconds=-1))
    scene.thread._asked_at = 0.0
    scene.thread.turn()
    assert runner.next_at < resting
    assert scene.long._wake.is_set()


def test_a_duty_that_is_notified_is_asked_for_at_once(scene: Scene) -> None:
    scene.turn()
    schedule = ScheduleFactory(next_at=clock.now())
    runner = scene.runners["enqueue_scheduled_jobs"]
    scene.thread.turn()
    assert Schedule.objects.get().next_at == schedule.next_at, "its interval is 5 s"
    runner.notify()
    scene.thread.turn()
    assert Schedule.objects.get().next_at > schedule.next_at


def test_if_the_statement_fails_each_duty_finds_out_by_itself(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> Any:
        raise DatabaseError("a row cannot be read")

    monkeypatch.setattr(questions, "ask", refuse)
    due = JobFactory(due=True)
    scene.long._wake.clear()
    assert len(scene.turn()) > 1
    assert scene.long._wake.is_set(), "the long duties, too"
    due.refresh_from_db()
    assert due.status == "QUEUED"
    assert [str(error) for error in scene.errors] == ["a row cannot be read"]


def test_the_statement_is_compiled_only_when_the_duties_change(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[int] = []
    compile_questions = questions.compile_questions

    def watched(database: Any, queries: Any) -> Any:
        compiled.append(len(queries))
        return compile_questions(database, queries)

    monkeypatch.setattr(questions, "compile_questions", watched)
    scene.turn()
    scene.turn()
    assert len(compiled) == 1
    scene.thread.remove(scene.runners["promote_due_jobs"])
    scene.turn()
    assert compiled == [compiled[0], compiled[0] - 3]
