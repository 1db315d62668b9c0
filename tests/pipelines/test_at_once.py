"""What several threads or coroutines of one run ask for at the same time, beside a reporter that works in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connections

from jobqueue import pipeline
from jobqueue.exceptions import JobQueueError
from jobqueue.lifecycle.finish import finish
from jobqueue.lifecycle.outcome import Outcome
from jobqueue.models import Job
from jobqueue.tasks import registry
from jobqueue.worker import executor
from jobqueue.worker.errands import send, wait_for
from jobqueue.worker.reporter import Reporter
from jobqueue.worker.run import Run, Runs
from tests.claiming import claim
from tests.worker.parts import PATIENCE_SECONDS

pytestmark = pytest.mark.django_db(transaction=True)
NUMBER = 8
left: dict[str, Any] = {}


class Crew:
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
        finish([outcome])
        return outcome


@pytest.fixture
def crew() -> Iterator[Crew]:
    made = Crew()
    yield made
    made.run._closed = True  # whatever still waits is let go
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


def test_checkpoints_that_coroutines_ask_for_at_once_are_all_kept_in_order(crew: Crew) -> None:
    crew.result(gathered)
    assert crew.row().status == "SUCCESS"
    assert crew.row().phases.get().checkpoint == NUMBER - 1


def test_checkpoints_that_threads_ask_for_at_once_are_all_kept(crew: Crew) -> None:
    crew.result(threaded)
    assert crew.row().status == "SUCCESS"
    assert crew.row().phases.get().checkpoint in range(NUMBER)


def test_metadata_that_threads_save_at_once_is_all_stored(crew: Crew) -> None:
    crew.result(saved)
    assert (crew.row().status, crew.row().result) == ("SUCCESS", NUMBER)
    assert len(crew.row().metadata) == NUMBER


def leaving(context: Any) -> None:
    left["may go"] = threading.Event()
    left["answer"] = Future()

    def late() -> None:
        left["may go"].wait(PATIENCE_SECONDS)
        try:
            left["answer"].set_result(context.checkpoint("late"))
        except BaseException as error:  # noqa: BLE001 - the test looks at it
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
def test_a_checkpoint_after_the_end_is_refused_and_hangs_nobody(crew: Crew, in_the_end: bool) -> None:
    left["in the end"] = in_the_end
    crew.result(leaves_a_thread)
    left["may go"].set()
    with pytest.raises(JobQueueError, match="all of them have finished"):
        left["answer"].result(PATIENCE_SECONDS)
    assert (crew.row().status, crew.row().phases.get().checkpoint) == ("SUCCESS", None)


def test_an_errand_that_was_not_done_when_the_run_ended_is_answered(crew: Crew) -> None:
    crew.result(threaded)
    crew.run._closed = False
    crew.runs.remove([crew.run.lease])
    future = send(crew.run, lambda: None)
    crew.run.close()
    executor.handed_back(crew.run)
    with pytest.raises(JobQueueError, match="The run has ended"):
        wait_for(crew.run, future)


def test_an_errand_that_raises_what_is_no_exception_is_answered_with_it(crew: Crew) -> None:
    def leave() -> None:
        calls.append(1)
        raise SystemExit(3)

    calls: list[int] = []
    crew.result(threaded)
    crew.run._closed = False
    with pytest.raises(SystemExit):
        wait_for(crew.run, send(crew.run, leave))
    assert len(calls) == 1
