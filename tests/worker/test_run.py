import gc
import sys
import threading
import time
import weakref
from collections.abc import Iterator

import pytest

from jobqueue.exceptions import Interrupted, LeaseLost
from jobqueue.lifecycle.outcome import Kind
from jobqueue.tasks.context import TaskContext
from jobqueue.worker.running.executor import execute
from jobqueue.worker.running.interrupter import GIVE_UP_SECONDS, Interrupter
from jobqueue.worker.running.run import Reason, Run, Runs
from tests.worker.parts import PATIENCE_SECONDS, Collector, run_of


@pytest.fixture
def quick_switches() -> Iterator[None]:
    """Make threads switch as often as possible."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


def spin(turns: int) -> None:
    for _ in range(turns):
        pass


@pytest.mark.long
def test_an_exception_thrown_around_the_end_of_a_task_never_leaves_the_executor(quick_switches: None) -> None:
    """Wherever it arrives, the run has an outcome, and the thread's next lines are left alone."""
    kinds = set()
    for number in range(1500):
        began = threading.Event()

        def task(number: int = number, began: threading.Event = began) -> None:
            began.set()
            spin(number % 300)

        run = run_of(task)

        def throw(run: Run = run, began: threading.Event = began) -> None:
            began.wait(PATIENCE_SECONDS)
            run.interrupt(Reason.USER)
            run.throw()

        thrower = threading.Thread(target=throw)
        thrower.start()
        try:
            outcome = execute(run, hygienic=False)
            thrower.join()
            spin(200)  # a late one would hit here
        except Interrupted:
            pytest.fail(f"run {number}: the interruption left the run")
        kinds.add(outcome.kind)
        assert run.ended is not None
    assert kinds <= {Kind.SUCCESS, Kind.INTERRUPTED}


def test_an_exception_that_arrives_on_the_way_into_the_close_is_absorbed() -> None:
    class Late(Run):
        closed = 0

        def close(self) -> None:
            self.closed += 1
            if self.closed == 1:
                raise Interrupted
            super().close()

    plain = run_of(lambda: 7)
    run = Late(plain.job, plain.flush, plain.read_result)
    run.entry = plain.entry
    outcome = execute(run, hygienic=False)
    assert (outcome.kind, outcome.result) == (Kind.SUCCESS, "7")


def test_a_run_that_failed_does_not_wait_for_the_garbage_collector() -> None:
    class Broken(Exception):
        pass

    def task() -> None:
        raise Broken

    gc.disable()
    try:
        run = run_of(task)
        outcome = execute(run)
        assert outcome.error is not None
        error = weakref.ref(outcome.error)
        del run, outcome
        assert error() is None
    finally:
        gc.enable()


def test_a_run_that_was_asked_to_stop_before_it_started_never_starts() -> None:
    begun: list[bool] = []
    run = run_of(lambda: begun.append(True))
    run.interrupt(Reason.USER)
    assert execute(run, hygienic=False).kind is Kind.INTERRUPTED
    assert begun == []


@pytest.mark.parametrize(("reason", "kind"), [(Reason.USER, Interrupted), (Reason.SHUTDOWN, Interrupted), (Reason.LOST, LeaseLost)])
def test_every_call_of_the_context_raises_once_the_run_is_to_stop(reason: Reason, kind: type[Interrupted]) -> None:
    run = run_of(lambda: None)
    context = TaskContext(run.job, run)
    context.wait(0)
    context.progress(10)
    assert not context.cancelled
    run.interrupt(reason)
    assert context.cancelled
    for call in (lambda: context.wait(60), lambda: context.progress(20), context.raise_if_cancelled, context.save_metadata):
        with pytest.raises(kind):
            call()
    assert run.own_progress().percent == 10


def test_an_assignment_to_a_context_is_refused_with_the_way_to_change_its_metadata() -> None:
    run = run_of(lambda: None)
    with pytest.raises(AttributeError, match=r"context\.metadata cannot be assigned\. Change the content"):
        TaskContext(run.job, run).metadata = {}  # type: ignore[misc]


def test_a_wait_ends_at_once_when_the_run_is_to_stop() -> None:
    run = run_of(lambda: None)
    context = TaskContext(run.job, run)
    timer = threading.Timer(0.05, run.interrupt, [Reason.USER])
    timer.start()
    began = time.monotonic()
    with pytest.raises(Interrupted):
        context.wait(60)
    assert time.monotonic() - began < 10
    timer.join()


def test_a_stronger_reason_beats_a_weaker_one_and_never_the_reverse() -> None:
    run = run_of(lambda: None)
    assert [run.interrupt(reason) for reason in (Reason.SHUTDOWN, Reason.USER, Reason.LOST, Reason.SHUTDOWN)] == [True, False, True, False]
    assert run.reason is Reason.LOST


def test_a_request_can_be_withdrawn_but_a_shutdown_cannot() -> None:
    asked, ending = run_of(lambda: None), run_of(lambda: None)
    asked.interrupt(Reason.USER)
    ending.interrupt(Reason.SHUTDOWN)
    asked.withdraw()
    ending.withdraw()
    assert (asked.reason, ending.reason) == (None, Reason.SHUTDOWN)


def test_a_run_that_has_ended_cannot_be_given_up_on_and_one_given_up_on_stays_so() -> None:
    ended, stuck = run_of(lambda: None), run_of(lambda: None)
    ended.close()
    assert not ended.abandon()
    assert stuck.abandon()
    stuck.close()
    assert stuck.abandoned
    assert not ended.abandoned


def test_the_register_keeps_two_runs_of_one_job_apart() -> None:
    runs = Runs()
    first, second = run_of(lambda: None, lease_token=1), run_of(lambda: None, lease_token=2)
    runs.add([first, second])
    runs.remove([first.lease])
    assert runs.get(first.lease) is None
    assert list(runs) == [second]


def test_a_run_with_a_target_that_does_not_react_keeps_it_and_is_counted_as_stuck() -> None:
    noticed: list[bool] = []
    replaced: list[Run] = []
    interrupter = Interrupter(Collector().put, replaced.append, lambda *_: None, lambda: noticed.append(True))
    stubborn = run_of(lambda: None, target="customer:7")
    interrupter.interrupt(stubborn, Reason.USER)
    stubborn.interrupted_at -= GIVE_UP_SECONDS
    assert interrupter.turn() is None
    assert (interrupter.stuck, noticed, stubborn.abandoned) == (1, [True], False)
    assert replaced == [], "its slot stays taken"
    stubborn.ended = time.monotonic()
    assert interrupter.stuck == 0
