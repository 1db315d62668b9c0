"""A time limit at any moment of a run, even around its ends, applies to exactly this run, and once."""

import sys
import threading
from collections.abc import Iterator

import pytest

from jobqueue.exceptions import TimeLimitExceeded
from jobqueue.lifecycle.outcome import Kind, Outcome
from jobqueue.worker.running.executor import execute
from jobqueue.worker.running.run import Reason, Run
from tests.worker.limited import LIMIT, TEXT, Scene, spin
from tests.worker.parts import PATIENCE_SECONDS, run_of


@pytest.fixture
def quick_switches() -> Iterator[None]:
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


def test_a_limit_around_the_end_of_a_task_never_leaves_its_run(quick_switches: None) -> None:
    """Wherever it arrives, the run has an outcome, and the thread's next lines are left alone."""
    kinds = set()
    for number in range(1500):
        began = threading.Event()

        def task(number: int = number, began: threading.Event = began) -> None:
            began.set()
            for _ in range(number % 300):
                pass

        run = run_of(task)

        def expire(run: Run = run, began: threading.Event = began) -> None:
            began.wait(PATIENCE_SECONDS)
            run.expire()

        other = threading.Thread(target=expire)
        other.start()
        try:
            outcome = execute(run, hygienic=False)
            other.join()
            for _ in range(200):  # a late one would hit here
                pass
        except TimeLimitExceeded:
            pytest.fail(f"run {number}: the error left the run")
        kinds.add(outcome.kind)
        assert run.ended is not None
    assert kinds <= {Kind.SUCCESS, Kind.ERROR}


@pytest.mark.long
def test_thousands_of_short_runs_with_limits_near_their_length_are_each_settled_once_and_hit_no_other(quick_switches: None) -> None:
    made = Scene()
    hit: list[int] = []

    def innocent() -> None:
        for _ in range(20):
            pass

    def bystander(number: int) -> None:
        try:
            innocent()
        except BaseException:
            hit.append(number)
            raise

    runs = []
    for number in range(4000):
        if number % 2:
            runs.append(made.run(lambda number=number: bystander(number), seconds=None, number=number))
        else:
            runs.append(made.run(lambda number=number: spin(number % 7 * 1e-4), seconds=3e-4, number=number))
    made.pool.resize(4)
    made.submit(*runs)
    kinds = made.outcomes.wait(4000)
    made.close()
    assert sorted(run.job.id for run, _ in made.outcomes.outcomes) == list(range(4000))
    assert hit == []
    assert {outcome.kind for run, outcome in made.outcomes.outcomes if run.job.id % 2} == {Kind.SUCCESS}
    assert {Kind.SUCCESS, Kind.ERROR} == set(kinds), "some were in time and some were not"


def test_a_limit_that_comes_while_the_run_is_being_closed_is_absorbed() -> None:
    run = run_of(lambda: None)
    run.begin()
    waits = threading.Event()

    def expire() -> None:
        with run.lock:
            waits.set()
            threading.Event().wait(0.1)  # the other thread waits for the lock
            run.expired = True
            run._raise_in_thread(TimeLimitExceeded)

    other = threading.Thread(target=expire)
    other.start()
    assert waits.wait(PATIENCE_SECONDS)
    run.close()
    other.join()
    assert run.closed


def test_a_run_that_is_asked_to_stop_gets_no_time_limit_exception() -> None:
    run = run_of(lambda: None)
    run.interrupt(Reason.USER)
    assert (run.expire(), run.expired) == (False, False)


def test_a_limit_that_is_over_before_the_task_begins_is_reported_at_once() -> None:
    begun: list[bool] = []
    run = run_of(lambda: begun.append(True))
    run.limit, run.watch = LIMIT, lambda run: [run.expire()].clear()
    outcome = execute(run, hygienic=False)
    assert outcome.failure is not None
    assert (outcome.failure.summary, begun) == (TEXT, [])


def test_an_exception_raised_during_a_call_of_the_context_waits_for_its_end() -> None:
    """In the call the thread may have a lock that the worker's other threads need."""
    inside, go_on, done = threading.Event(), threading.Event(), threading.Event()

    def flush(run: Run) -> None:
        inside.set()
        while not go_on.is_set():
            pass
        for _ in range(1000):
            pass
        done.set()

    def task() -> None:
        run.report(10, None)

    plain = run_of(task)
    run = Run(plain.job, flush, plain.read_result)
    run.entry, run.limit = plain.entry, LIMIT
    outcomes: list[Outcome] = []
    thread = threading.Thread(target=lambda: outcomes.append(execute(run, hygienic=False)))
    thread.start()
    assert inside.wait(PATIENCE_SECONDS)
    assert run.expire()
    go_on.set()
    thread.join(PATIENCE_SECONDS)
    assert done.is_set(), "the call came to its end"
    assert outcomes[0].failure is not None
    assert outcomes[0].failure.summary == TEXT


def test_an_interrupt_thrown_into_a_call_of_the_context_waits_for_its_end_too() -> None:
    inside, go_on, done = threading.Event(), threading.Event(), threading.Event()

    def flush(run: Run) -> None:
        inside.set()
        go_on.wait(PATIENCE_SECONDS)
        done.set()

    plain = run_of(lambda: run.report(10, None))
    run = Run(plain.job, flush, plain.read_result)
    run.entry = plain.entry
    outcomes: list[Outcome] = []
    thread = threading.Thread(target=lambda: outcomes.append(execute(run, hygienic=False)))
    thread.start()
    assert inside.wait(PATIENCE_SECONDS)
    run.interrupt(Reason.USER)
    run.throw()
    go_on.set()
    thread.join(PATIENCE_SECONDS)
    assert done.is_set()
    assert outcomes[0].kind is Kind.INTERRUPTED
