import sys
import threading
import time
from typing import Any, NoReturn

import pytest

from jobqueue.lifecycle.outcome import Kind
from jobqueue.worker.running.interrupter import Interrupter
from jobqueue.worker.running.pool import Pool
from jobqueue.worker.running.run import Reason
from tests.worker.parts import PATIENCE_SECONDS, Collector, run_of


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("jobqueue-thread")}


@pytest.fixture
def outcomes() -> Collector:
    return Collector()


@pytest.fixture
def pool(outcomes: Collector) -> Any:
    made = Pool(outcomes.put)
    yield made
    made.resize(0)
    assert made.join(time.monotonic() + PATIENCE_SECONDS)


def test_runs_begin_in_the_order_in_which_they_were_submitted(pool: Pool, outcomes: Collector) -> None:
    order: list[int] = []
    pool.submit([run_of(lambda number=number: order.append(number), number=number) for number in range(20)])
    pool.resize(1)
    outcomes.wait(20)
    assert order == list(range(20))
    assert pool.completed == 20


def test_the_thread_continues_after_any_exception_of_a_task(pool: Pool, outcomes: Collector) -> None:
    def leave() -> NoReturn:
        sys.exit()

    pool.resize(2)
    together = threading.Barrier(2)
    pool.submit([run_of(lambda: together.wait(PATIENCE_SECONDS), number=number) for number in range(2)])
    outcomes.wait(2)
    before = threads()
    pool.submit([run_of(leave, number=number) for number in range(2, 12)])
    assert outcomes.wait(12)[2:] == [Kind.ERROR] * 10
    assert (threads(), len(before)) == (before, 2)


def test_no_more_threads_start_than_there_are_runs_at_once(pool: Pool, outcomes: Collector) -> None:
    pool.resize(50)
    assert pool.threads == 0
    for number in range(20):  # one after the other
        pool.submit([run_of(lambda: None, number=number)])
        outcomes.wait(number + 1)
    assert pool.threads == 1


def test_a_run_never_waits_for_another_one_while_there_is_a_slot(pool: Pool, outcomes: Collector) -> None:
    """Each time, the thread of the first run appears to be still idle, or idle again, when the other runs are submitted."""
    pool.resize(3)
    for turn in range(200):
        together = threading.Barrier(3)
        for number in range(3):
            pool.submit([run_of(lambda together=together: together.wait(PATIENCE_SECONDS), number=3 * turn + number)])
        assert outcomes.wait(3 * turn + 3)[-3:] == [Kind.SUCCESS] * 3
    assert pool.threads == 3


def test_runs_that_were_taken_back_leave_no_unneeded_threads(pool: Pool, outcomes: Collector) -> None:
    pool.submit([run_of(lambda: None, number=number) for number in range(5)])  # there are no slots yet
    assert len(pool.take_waiting(time.monotonic() + 1)) == 5
    pool.resize(5)
    assert pool.threads == 0
    pool.submit([run_of(lambda: None, number=5)])
    outcomes.wait(1)
    assert pool.threads == 1


def test_a_shrinking_pool_interrupts_no_run(pool: Pool, outcomes: Collector) -> None:
    begun, go_on = threading.Barrier(3), threading.Event()

    def task() -> str:
        begun.wait(PATIENCE_SECONDS)
        go_on.wait(PATIENCE_SECONDS)
        return "whole"

    pool.resize(2)
    pool.submit([run_of(task, number=number) for number in (1, 2)])
    begun.wait(PATIENCE_SECONDS)
    pool.resize(0)
    assert len(threads()) == 2
    go_on.set()
    outcomes.wait(2)
    assert {outcome.result for _, outcome in outcomes.outcomes} == {'"whole"'}


def test_only_runs_that_have_waited_long_enough_are_taken_out_and_the_order_stays(pool: Pool, outcomes: Collector) -> None:
    old, new = [run_of(lambda: None, number=number) for number in (1, 2)], [run_of(lambda: None, number=number) for number in (3, 4)]
    for run in old:
        run.claimed_at -= 5
    pool.submit([old[0], new[0], old[1], new[1]])
    assert pool.take_waiting(time.monotonic() - 1) == old
    pool.resize(1)
    outcomes.wait(2)
    assert [run.job.id for run, _ in outcomes.outcomes] == [3, 4]


def test_a_thread_that_was_given_up_on_is_replaced_and_ends_with_its_task(pool: Pool, outcomes: Collector) -> None:
    begun, end = threading.Event(), threading.Event()

    def stubborn() -> None:
        begun.set()
        end.wait(PATIENCE_SECONDS)

    pool.resize(1)
    stuck = run_of(stubborn)
    pool.submit([stuck])
    begun.wait(PATIENCE_SECONDS)
    assert stuck.abandon()
    pool.abandon_thread(stuck)
    pool.submit([run_of(lambda: None, number=2)])
    outcomes.wait(1)
    assert (pool.stuck, len(threads())) == (1, 2)
    end.set()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while pool.stuck or len(threads()) > 1:
        assert time.monotonic() < deadline
    assert [run.job.id for run, _ in outcomes.outcomes] == [2], "the late outcome counts for nothing"


def test_the_interrupter_goes_from_the_flag_to_the_exception_to_giving_up(
    pool: Pool, outcomes: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobqueue.worker.running.interrupter.THROW_SECONDS", 0.1)
    monkeypatch.setattr("jobqueue.worker.running.interrupter.GIVE_UP_SECONDS", 0.4)
    begun, end = threading.Barrier(3), threading.Event()

    def busy() -> None:
        begun.wait(PATIENCE_SECONDS)
        while not end.is_set():
            pass

    def stubborn() -> None:
        begun.wait(PATIENCE_SECONDS)
        while not end.is_set():
            try:
                end.wait(0.01)
            except BaseException:  # noqa: BLE001, S112
                continue

    interrupter = Interrupter(outcomes.put, pool.abandon_thread, lambda service, error, failures: None)
    interrupter.start()
    runs = [run_of(busy, number=1), run_of(stubborn, number=2)]
    targeted = run_of(stubborn, number=3, target="t")
    begun = threading.Barrier(4)
    pool.resize(3)
    pool.submit([*runs, targeted])
    begun.wait(PATIENCE_SECONDS)
    for run in (*runs, targeted):
        interrupter.interrupt(run, Reason.USER)
    assert outcomes.wait(2) == [Kind.INTERRUPTED, Kind.INTERRUPTED]
    assert [run.job.id for run, _ in outcomes.outcomes] == [1, 2]
    assert [run.abandoned for run in (*runs, targeted)] == [False, True, False], "nothing else of its target may run beside it"
    end.set()
    assert outcomes.wait(3)[2] is Kind.SUCCESS
    interrupter.stop()
    assert interrupter.join(PATIENCE_SECONDS)


def test_a_pool_that_grows_again_keeps_threads_that_it_has_asked_to_exit(pool: Pool, outcomes: Collector) -> None:
    begun, go_on = threading.Barrier(4), threading.Event()

    def task() -> None:
        begun.wait(PATIENCE_SECONDS)
        go_on.wait(PATIENCE_SECONDS)

    pool.resize(3)
    pool.submit([run_of(task, number=number) for number in (1, 2, 3)])
    begun.wait(PATIENCE_SECONDS)
    for size in (1, 3, 0, 2):
        pool.resize(size)
    assert pool.threads == 3, "no thread works beside those that were asked to exit"
    go_on.set()
    outcomes.wait(3)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while pool.threads > 2:
        assert time.monotonic() < deadline
    pool.submit([run_of(lambda: None, number=number) for number in range(4, 14)])
    outcomes.wait(13)
    assert (pool.threads, pool.size) == (2, 2)


def test_if_no_more_threads_can_start_the_size_is_their_number(
    pool: Pool, outcomes: Collector, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    begun, go_on = threading.Barrier(4), threading.Event()

    def task() -> None:
        begun.wait(PATIENCE_SECONDS)
        go_on.wait(PATIENCE_SECONDS)

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    pool.resize(3)
    pool.submit([run_of(task, number=1)])
    with monkeypatch.context() as scarce:
        scarce.setattr(threading.Thread, "start", refuse)
        pool.submit([run_of(task, number=number) for number in (2, 3)])
    assert (pool.size, pool.threads) == (1, 1)
    assert "running with 1 of 3 slots: can't start new thread" in caplog.text
    pool.resize(3)
    begun.wait(PATIENCE_SECONDS)  # all three run now
    go_on.set()
    outcomes.wait(3)
    assert (pool.size, pool.threads) == (3, 3)
