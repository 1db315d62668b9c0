"""Concurrent requests of several threads or coroutines of one run, with a reporter in its own thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.db import connection, connections, transaction

from jobqueue import cancel, pipeline, signals
from jobqueue import task as plain_task
from jobqueue.declared import registry
from jobqueue.exceptions import JobQueueError, NoPhases, Retry
from jobqueue.lifecycle.finish import finish
from jobqueue.lifecycle.outcome import Kind, Outcome
from jobqueue.models import Job, Queue
from jobqueue.worker.reporting.reporter import Reporter
from jobqueue.worker.running import executor, judging
from jobqueue.worker.running.run import Reason, Run, Runs
from jobqueue.worker.running.side_writes import wait_for
from tests.claiming import claim
from tests.factories import JobFactory
from tests.worker.parts import PATIENCE_SECONDS
from tests.worker.whole import until

pytestmark = pytest.mark.django_db(transaction=True)
NUMBER = 8
left: dict[str, Any] = {}


class Scene:
    """Run one job in a thread beside a reporter."""

    def __init__(self) -> None:
        self.runs = Runs()
        self.errors: list[BaseException] = []
        self.reporter = Reporter(self.runs, lambda service, error, failures: self.errors.append(error))
        self.reporter.start()
        self.threads = ThreadPoolExecutor(1)
        self.run: Run

    def begin(self, task: Any, *args: Any) -> Future[Outcome]:
        """Begin to run a new job of the task."""
        task.enqueue(*args)
        [job] = claim("worker-1", (), 1, 30.0)
        self.run = Run(job, self.reporter.flush, executor.read_result)
        self.run.entry = registry.find(job.task)
        assert self.run.entry is not None
        self.runs.add([self.run])
        call: Callable[[Run], Outcome] = async_to_sync(executor.execute_async) if self.run.entry.is_async else executor.execute
        return self.threads.submit(self._run, call)

    def _run(self, call: Callable[[Run], Outcome]) -> Outcome:
        try:
            return call(self.run)
        finally:
            connections.close_all()

    def row(self) -> Job:
        return Job.objects.get(pk=self.run.job.id)

    def result(self, task: Any, *args: Any) -> Outcome:
        """Run a new job of the task and write what came of it."""
        outcome = self.begin(task, *args).result(PATIENCE_SECONDS)
        self.write(outcome)
        return outcome

    def write(self, outcome: Outcome) -> None:
        """Write an outcome; as for the finisher, this takes more than one attempt if the reporter has the row locked."""

        def is_written() -> bool:
            finish([outcome])
            return self.row().status != "RUNNING"

        until(is_written, "the outcome is written")


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.run.closed = True  # waiting threads are released
    made.reporter.stop()
    assert made.reporter.join(PATIENCE_SECONDS)
    made.threads.shutdown(wait=True)


async def gathering(context: Any) -> None:
    await asyncio.gather(*(context.acheckpoint(number) for number in range(NUMBER)))


@pipeline(phases=[gathering])
async def gathered(context: Any) -> Any:
    """Keep checkpoints at once."""


def _each(call: Callable[[int], object]) -> None:
    threads = [threading.Thread(target=call, args=(number,)) for number in range(NUMBER)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()


def threading_phase(context: Any) -> None:
    _each(context.checkpoint)


@pipeline(phases=[threading_phase])
def threaded(context: Any) -> None:
    """Keep checkpoints in threads."""


def saving_phase(context: Any) -> int:
    saved = []

    def save(number: int) -> None:
        context.metadata[str(number)] = number
        context.save_metadata()
        saved.append(number)

    _each(save)
    return len(saved)


@pipeline(phases=[saving_phase])
def saved(context: Any) -> None:
    """Save metadata in threads."""


def test_checkpoints_that_coroutines_ask_for_at_once_are_all_kept_in_order(scene: Scene) -> None:
    scene.result(gathered)
    assert scene.row().status == "SUCCESS"
    assert scene.row().phases.get().checkpoint == NUMBER - 1


def test_checkpoints_that_threads_ask_for_at_once_are_all_kept(scene: Scene) -> None:
    scene.result(threaded)
    assert scene.row().status == "SUCCESS"
    assert scene.row().phases.get().checkpoint in range(NUMBER)


def test_threads_that_save_metadata_at_once_all_return(scene: Scene) -> None:
    scene.result(saved)
    assert (scene.row().status, scene.row().result) == ("SUCCESS", NUMBER)
    assert scene.row().metadata


def leaving(context: Any) -> None:
    left["may go"] = threading.Event()
    left["answer"] = Future()

    def late() -> None:
        left["may go"].wait(PATIENCE_SECONDS)
        try:
            left["answer"].set_result(context.checkpoint("late"))
        except BaseException as error:  # noqa: BLE001 - the test checks it
            left["answer"].set_exception(error)

    left["thread"] = threading.Thread(target=late)
    left["thread"].start()


@pipeline(phases=[leaving])
def leaves_a_thread(context: Any) -> str:
    if left["in the end"]:
        left["may go"].set()
        left["thread"].join()
    return "done"


@pytest.mark.parametrize("in_the_end", [False, True])
def test_a_checkpoint_after_the_end_is_refused_and_blocks_no_thread(scene: Scene, in_the_end: bool) -> None:
    left["in the end"] = in_the_end
    scene.result(leaves_a_thread)
    left["may go"].set()
    with pytest.raises(JobQueueError, match="all of them have finished"):
        left["answer"].result(PATIENCE_SECONDS)
    assert (scene.row().status, scene.row().phases.get().checkpoint) == ("SUCCESS", None)


def parting(context: Any) -> None:
    context.metadata["first"] = 1
    left["of the first"] = context


def following(context: Any) -> list[str]:
    context.checkpoint("mine")
    context.progress(10, "mine")
    late = left["of the first"]
    calls = (lambda: late.checkpoint("late"), lambda: late.progress(90, "late"), lambda: late.sleep(60), lambda: late.checkpoint_data)
    with ThreadPoolExecutor(1) as other:
        found = [repr(other.submit(call).exception(PATIENCE_SECONDS)) for call in calls]
    assert context.checkpoint_data == "mine"
    assert (late.metadata, late.phase_results()) == (context.metadata, {"parting": None}), "what it reads is there"
    return found


async def parting_in_loop(context: Any) -> None:
    left["of the first"] = context


async def following_in_loop(context: Any) -> list[str]:
    await context.acheckpoint("mine")
    context.progress(10, "mine")
    try:
        await left["of the first"].acheckpoint("late")
    except NoPhases as error:
        return [repr(error)]
    return []


@pipeline(phases=[parting, following])
def leaves_its_context(context: Any) -> None:
    """Make a part of the first phase continue during the second."""


@pipeline(phases=[parting_in_loop, following_in_loop])
async def leaves_its_context_in_loop(context: Any) -> None:
    """Make a part of the first phase continue during the second."""


@pytest.mark.parametrize("task", [leaves_its_context, leaves_its_context_in_loop])
def test_a_thread_that_a_phase_has_left_behind_cannot_write_for_the_next_one(scene: Scene, task: Any) -> None:
    scene.result(task)
    found = scene.row().result
    assert found, scene.row().history
    assert all("which has ended" in one and "'parting" in one for one in found), found
    second = scene.row().phases.get(position=1)
    assert (scene.row().status, second.checkpoint, second.message, scene.row().message) == ("SUCCESS", "mine", "mine", "mine")


def test_a_side_write_that_was_not_done_when_the_run_ended_is_answered(scene: Scene) -> None:
    scene.result(threaded)
    scene.run.closed = False
    scene.runs.remove([scene.run.lease])
    future = scene.run.send(lambda: None)
    scene.run.close()
    judging.handed_back(scene.run)
    with pytest.raises(JobQueueError, match="The run has ended"):
        wait_for(scene.run, future)


def test_a_side_write_that_raises_what_is_no_exception_is_answered_with_it(scene: Scene) -> None:
    def leave() -> None:
        calls.append(1)
        raise SystemExit(3)

    calls: list[int] = []
    scene.result(threaded)
    scene.run.closed = False
    with pytest.raises(SystemExit):
        wait_for(scene.run, scene.run.send(leave))
    assert len(calls) == 1


def stopped(context: Any, reason: str) -> None:
    context.progress(10, "first")
    threading.Event().wait(0.3)
    left["scene"].run.interrupt(Reason[reason])


async def stopped_in_loop(context: Any, reason: str) -> None:
    left["scene"].run.interrupt(Reason[reason])


def behind(context: Any, reason: str) -> None:
    left["behind"] = True


async def behind_in_loop(context: Any, reason: str) -> None:
    left["behind"] = True


@pipeline(phases=[stopped, behind])
def stops(context: Any, reason: str) -> None:
    """Get a request to stop between two phases."""


@pipeline(phases=[stopped_in_loop, behind_in_loop])
async def stops_in_loop(context: Any, reason: str) -> None:
    """Get a request to stop between two phases."""


@pytest.mark.parametrize("task", [stops, stops_in_loop])
@pytest.mark.parametrize("reason", ["USER", "SHUTDOWN"])
def test_a_run_that_is_to_stop_begins_no_further_phase(scene: Scene, task: Any, reason: str) -> None:
    left.update(scene=scene, behind=False)
    outcome = scene.result(task, reason)
    assert outcome.kind is (Kind.INTERRUPTED if reason == "USER" else Kind.HANDED_BACK)
    assert not left["behind"]
    assert [(one.status, one.attempts) for one in scene.row().phases.order_by("position")] == [("SUCCESS", 1), ("PENDING", 0)]
    assert (scene.row().status, scene.row().phase, scene.row().progress) == ("QUEUED", task.phases[1].name, 50)
    assert scene.row().events.filter(name="job.phase.started").count() == 1


@pipeline(phases=[stopped])
def stops_in_the_last(context: Any, reason: str) -> str:
    left["behind"] = True
    return "done"


@pipeline(phases=[stopped_in_loop])
async def stops_in_the_last_in_loop(context: Any, reason: str) -> str:
    left["behind"] = True
    return "done"


@pytest.mark.parametrize("task", [stops_in_the_last, stops_in_the_last_in_loop])
def test_a_cancel_in_the_last_phase_prevents_the_pipelines_own_function(scene: Scene, task: Any) -> None:
    left.update(scene=scene, behind=False)
    future = scene.begin(task, "USER")
    outcome = future.result(PATIENCE_SECONDS)
    assert (outcome.kind, left["behind"]) == (Kind.INTERRUPTED, False)
    cancel(scene.run.job.id)
    scene.write(outcome)
    job = scene.row()
    assert (job.status, job.result, job.phases.get().status) == ("CANCELED", None, "SUCCESS")
    assert job.events.filter(name__in=["job.canceled", "job.completed"]).count() == 1


def test_an_interruption_that_was_obeyed_is_not_taken_back(scene: Scene) -> None:
    left.update(scene=scene, behind=False)
    assert scene.begin(stops, "USER").result(PATIENCE_SECONDS).kind is Kind.INTERRUPTED
    scene.run.withdraw()
    assert scene.run.reason is Reason.USER


def test_a_run_that_has_lost_its_lease_begins_no_further_phase(scene: Scene) -> None:
    left.update(scene=scene, behind=False)
    assert scene.begin(stops, "LOST").result(PATIENCE_SECONDS).kind is Kind.INTERRUPTED
    assert not left["behind"]


def telling(context: Any, how: str) -> None:
    context.progress(10, "first")
    threading.Event().wait(0.4)
    context.progress(90, "last report")
    if how == "sleep":
        context.sleep(60)
    if how == "wait":
        context.wait_for(left["children"])
    if how == "retry":
        raise Retry


def quiet(context: Any, how: str) -> None: ...


@pipeline(phases=[telling, quiet], max_attempts=2)
def tells(context: Any, how: str) -> None:
    """Report progress twice."""


@pytest.mark.long
@pytest.mark.parametrize(("how", "progress"), [("return", 100), ("sleep", 100), ("wait", 100), ("retry", 90)])
def test_the_last_message_of_a_phase_is_kept_however_it_ends(scene: Scene, how: str, progress: int) -> None:
    left["children"] = [JobFactory(status="SUCCESS").pk]
    scene.result(tells, how)
    first = scene.row().phases.get(name="telling")
    assert (first.message, first.progress) == ("last report", progress)


def _leave() -> None:
    raise SystemExit(3)


def _open() -> None:
    connection.set_autocommit(False)


@pytest.mark.long
@pytest.mark.parametrize("harm", [_leave, _open])
def test_a_receiver_of_events_that_exits_or_leaves_a_transaction_open_harms_no_pipeline(
    scene: Scene, harm: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    def receive(**_: Any) -> None:
        if threading.current_thread() is not threading.main_thread():
            harm()

    left["children"] = []
    signals.job_event.connect(receive)
    try:
        scene.result(tells, "return")
    finally:
        signals.job_event.disconnect(receive)
    assert scene.row().status == "SUCCESS"
    assert list(scene.row().phases.order_by("position").values_list("status", "attempts")) == [("SUCCESS", 1)] * 2
    assert scene.row().events.filter(name="job.phase.started").count() == 2
    assert scene.errors == []
    assert [text for text in caplog.messages if "a receiver of the event" in text or "left a transaction open" in text]


def _open_raw() -> None:
    with connection.cursor() as cursor:
        cursor.execute("BEGIN")


def _open_block() -> None:
    transaction.atomic().__enter__()


LEAVE_OPEN = {"autocommit": _open, "raw": _open_raw, "block": _open_block}


def careless(context: Any, how: str) -> None:
    LEAVE_OPEN[how]()
    Queue.objects.create(name="written")


async def careless_in_loop(context: Any, how: str) -> None:
    await sync_to_async(careless)(context, how)


def careless_sleep(context: Any, how: str) -> None:
    careless(context, how)
    context.sleep(60)


@pipeline(phases=[careless])
def leaves_open(context: Any, how: str) -> None:
    """Leave a transaction open."""


@pipeline(phases=[careless_in_loop])
async def leaves_open_in_loop(context: Any, how: str) -> None:
    """Leave a transaction open."""


@pipeline(phases=[careless_sleep])
def leaves_open_and_sleeps(context: Any, how: str) -> None:
    """Leave a transaction open."""


@plain_task
def leaves_open_plainly(how: str) -> None:
    careless(None, how)


@pytest.mark.parametrize("how", LEAVE_OPEN)
@pytest.mark.parametrize("task", [leaves_open, leaves_open_in_loop, leaves_open_and_sleeps])
def test_a_phase_that_leaves_a_transaction_open_fails_and_says_so(scene: Scene, task: Any, how: str) -> None:
    scene.result(task, how)
    assert scene.row().status == "ERROR"
    # A sleep inside of a block that is Django's own is refused before.
    refused = (task, how) == (leaves_open_and_sleeps, "block")
    text = "inside of transaction.atomic()" if refused else "left a transaction open on default; what it wrote there is rolled back"
    assert text in scene.row().message
    assert scene.row().phases.get().status == "ERROR"
    assert not Queue.objects.filter(name="written").exists()


@pytest.mark.parametrize("how", LEAVE_OPEN)
def test_a_plain_task_that_leaves_a_transaction_open_is_named_in_the_log(scene: Scene, how: str, caplog: pytest.LogCaptureFixture) -> None:
    scene.result(leaves_open_plainly, how)
    assert scene.row().status == "SUCCESS"
    [text] = [text for text in caplog.messages if "left a transaction open" in text]
    assert f"Job {scene.run.job.id} ({leaves_open_plainly.module_path})" in text
