"""Time limits within one process: when the error is raised, in which thread, and runs that ignore it."""

import asyncio
import contextlib
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import IntegrityError, OperationalError, ProgrammingError

from jobqueue.exceptions import Interrupted, TimeLimitExceeded
from jobqueue.lifecycle.outcome import Kind, Outcome
from jobqueue.worker.process import drain
from jobqueue.worker.running import deadlines, transactional
from jobqueue.worker.running.deadlines import Deadlines
from jobqueue.worker.running.executor import execute
from jobqueue.worker.running.interrupter import Interrupter
from jobqueue.worker.running.lanes import Lanes
from jobqueue.worker.running.loop import Loop
from jobqueue.worker.running.pool import Pool
from jobqueue.worker.running.run import Reason, Run
from jobqueue.worker.running.stuck import given_up
from tests.worker.parts import PATIENCE_SECONDS, Collector, run_of

LIMIT = 0.1
GRACE = 0.2
TEXT = "jobqueue.exceptions.TimeLimitExceeded: The time limit of 0.1 s was exceeded"


class Scene:
    """An interrupter, a pool and a loop; what is given up on is put with what they run."""

    def __init__(self, spares: int = 8) -> None:
        self.outcomes = Collector()
        self.asked: list[Run] = []
        self.replaces = False
        self.lanes = Lanes(lambda: Pool(self.outcomes.put))
        self.pool = self.lanes.shared.pool
        self.loop = Loop(self.outcomes.put)
        self.interrupter = Interrupter(self.outcomes.put, self.go_on_without, lambda *_: None, lambda: None, spares, GRACE, self.replace)
        self.interrupter.start()
        self.end = threading.Event()

    def go_on_without(self, run: Run) -> None:
        if run.thread_id:
            self.pool.abandon_thread(run)
        else:
            self.loop.replace_if_blocked(run)

    def replace(self, run: Run) -> bool:
        self.asked.append(run)
        return self.replaces

    def run(self, function: Callable[..., Any], seconds: float | None = LIMIT, **more: Any) -> Run:
        """Return a run of a function with a time limit."""
        run = run_of(function, **more)
        run.lane = self.lanes.shared
        if seconds is not None:
            run.limit, run.watch = seconds, self.interrupter.watch
        return run

    def submit(self, *runs: Run) -> None:
        for run in runs:
            if run.entry is not None and run.entry.is_async:
                self.loop.submit(run)
            else:
                self.pool.submit([run])

    def come_to(self, function: Callable[..., Any], **more: Any) -> Outcome:
        """Run a function with a time limit; return what came of it."""
        if not self.pool.size:
            self.pool.resize(2)
        before = len(self.outcomes.outcomes)
        self.submit(self.run(function, **more))
        self.outcomes.wait(before + 1)
        return self.outcomes.outcomes[before][1]

    def swallow(self) -> None:
        """A task that only the end of the test stops."""
        while not self.end.is_set():
            with contextlib.suppress(BaseException):
                self.end.wait(0.01)

    async def aswallow(self) -> None:
        while not self.end.is_set():
            with contextlib.suppress(BaseException):
                await asyncio.sleep(0.01)

    async def block(self) -> None:
        self.end.wait(PATIENCE_SECONDS)

    def close(self) -> None:
        self.end.set()
        self.pool.resize(0)
        self.loop.stop()
        self.interrupter.stop()
        assert self.pool.join(time.monotonic() + PATIENCE_SECONDS)
        assert self.loop.join(PATIENCE_SECONDS)
        assert self.interrupter.join(PATIENCE_SECONDS)


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.close()


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.005)


def spin(seconds: float = PATIENCE_SECONDS) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


# The error in the task


def test_a_thread_gets_the_error_at_its_limit_and_the_run_fails_with_it(scene: Scene) -> None:
    began = time.monotonic()
    outcome = scene.come_to(spin)
    assert LIMIT <= time.monotonic() - began < LIMIT + 0.5
    assert outcome.kind is Kind.ERROR
    assert outcome.failure is not None
    assert (outcome.failure.path, outcome.failure.summary) == ("jobqueue.exceptions.TimeLimitExceeded", TEXT)
    assert "in spin" in outcome.failure.traceback


class Slow(logging.Handler):
    """A handler that is in the middle of a record until the end of the limit of a run, and for a while longer."""

    def __init__(self) -> None:
        super().__init__()
        self.run: Run | None = None
        self.written: list[str] = []
        self.entered = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.entered.set()
        try:
            until(lambda: self.run is None or self.run.expired or self.run.thrown)
            spin(0.02)
            self.written.append(record.getMessage())
        except Exception:  # noqa: BLE001 - as handlers do
            self.handleError(record)

    def is_free(self) -> bool:
        """Return whether another thread may write."""
        found: list[bool] = []

        def look() -> None:
            assert self.lock is not None
            if self.lock.acquire(timeout=0.5):
                self.lock.release()
                found.append(True)

        other = threading.Thread(target=look)
        other.start()
        other.join()
        return found == [True]


@pytest.fixture
def slow() -> Iterator[Slow]:
    handler = Slow()
    talker.addHandler(handler)
    yield handler
    talker.removeHandler(handler)


talker = logging.getLogger("tests.talker")
talker.propagate = False


@pytest.mark.parametrize("what", ["limit", "interrupt"])
def test_a_record_of_the_log_is_written_before_what_is_thrown_is_raised(scene: Scene, slow: Slow, what: str) -> None:
    after: list[str] = []

    def task() -> None:
        talker.warning("one")
        after.append("the line behind it")

    slow.run = run = scene.run(task, LIMIT if what == "limit" else None)
    scene.pool.resize(1)
    scene.submit(run)
    if what == "interrupt":
        assert slow.entered.wait(PATIENCE_SECONDS)
        run.interrupt(Reason.USER)
        run.throw()
    scene.outcomes.wait(1)
    kind = scene.outcomes.outcomes[0][1].kind
    assert (kind, slow.written, after) == (Kind.ERROR if what == "limit" else Kind.INTERRUPTED, ["one"], [])
    assert slow.is_free()
    slow.run = None
    scene.submit(scene.run(lambda: talker.warning("two"), None))
    scene.outcomes.wait(2)
    assert slow.written == ["one", "two"]


def test_a_record_that_is_written_while_a_call_of_the_context_is_protected_ends_no_protection(scene: Scene, slow: Slow) -> None:
    slow.run, seen = None, []

    def task(context: Any) -> None:
        with run.shield():
            until(lambda: run.expired)
            talker.warning("one")
            seen.append(run._shielded)

    run = scene.run(task, takes_context=True)
    scene.pool.resize(1)
    scene.submit(run)
    scene.outcomes.wait(1)
    assert (seen, slow.written) == ([True], ["one"])
    assert scene.outcomes.outcomes[0][1].kind is Kind.ERROR


@pytest.mark.parametrize(
    ("said", "path"),
    [
        (ProgrammingError("can't change 'autocommit' now"), "jobqueue.exceptions.TimeLimitExceeded"),
        (OperationalError("the connection is closed"), "jobqueue.exceptions.TimeLimitExceeded"),
        (IntegrityError("there is one of that name"), "django.db.utils.IntegrityError"),
        (RuntimeError("too late"), "builtins.RuntimeError"),
    ],
)
def test_the_error_of_a_connection_that_the_limit_has_closed_is_the_limits_error(scene: Scene, said: Exception, path: str) -> None:
    def task() -> None:
        try:
            spin()
        except TimeoutError:
            with contextlib.suppress(ValueError):  # one more error on the way
                raise ValueError  # noqa: B904
            raise said  # noqa: B904 - as the end of a transaction does

    failure = scene.come_to(task).failure
    assert failure is not None
    assert failure.path == path
    assert str(said) in failure.traceback
    assert (TEXT in failure.summary) == ("TimeLimit" in path)


def test_the_error_of_a_connection_that_an_interrupt_has_closed_is_the_interrupt(scene: Scene) -> None:
    def task() -> None:
        try:
            spin()
        except Interrupted:
            raise ProgrammingError("can't change 'autocommit' now")  # noqa: B904 - as the end of a transaction does

    run = scene.run(task, None)
    scene.pool.resize(1)
    scene.submit(run)
    until(lambda: run.thread_id)
    run.interrupt(Reason.USER)
    run.throw()
    scene.outcomes.wait(1)
    assert scene.outcomes.outcomes[0][1].kind is Kind.INTERRUPTED


def test_an_error_of_the_database_without_a_limit_is_that_error(scene: Scene) -> None:
    def task() -> None:
        raise ProgrammingError("no such thing")

    failure = scene.come_to(task).failure
    assert failure is not None
    assert failure.path == "django.db.utils.ProgrammingError"


def test_a_rest_on_the_context_ends_at_the_limit(scene: Scene) -> None:
    seen: list[str] = []

    def task(context: Any) -> None:
        try:
            context.wait(60)
        except TimeoutError as error:
            seen.append(str(error))
            raise

    began = time.monotonic()
    outcome = scene.come_to(task, takes_context=True)
    assert time.monotonic() - began < LIMIT + 0.5
    assert (outcome.kind, seen) == (Kind.ERROR, ["The time limit of 0.1 s was exceeded"])


def test_a_task_that_catches_it_may_clean_up_and_succeed(scene: Scene) -> None:
    rested: list[float] = []

    def task(context: Any) -> str:
        try:
            context.wait(60)
        except TimeoutError:
            began = time.monotonic()
            context.wait(0.05)
            rested.append(time.monotonic() - began)
            context.progress(50)
            assert not context.cancelled
        return "cleaned up"

    outcome = scene.come_to(task, takes_context=True)
    assert (outcome.kind, outcome.result, outcome.progress) == (Kind.SUCCESS, '"cleaned up"', 50)
    assert rested[0] >= 0.05, "the limit is reported once"


def test_a_task_that_turns_it_into_another_error_fails_with_that(scene: Scene) -> None:
    def task() -> None:
        try:
            spin()
        except TimeoutError as error:
            raise LookupError("the printer") from error

    outcome = scene.come_to(task)
    assert outcome.failure is not None
    assert outcome.failure.summary == "LookupError: the printer"


def test_it_is_a_failure_like_any_other_so_the_task_s_policy_says_whether_it_runs_again(scene: Scene) -> None:
    assert scene.come_to(spin, max_attempts=2).kind is Kind.RETRY
    assert scene.come_to(spin, max_attempts=2, failures=1).kind is Kind.ERROR


def test_a_coroutine_is_really_canceled_and_fails_with_the_error(scene: Scene) -> None:
    cleaned: list[str] = []

    async def task() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0.01)
            cleaned.append("up")
            raise

    outcome = scene.come_to(task, is_async=True)
    assert (outcome.kind, cleaned) == (Kind.ERROR, ["up"])
    assert outcome.failure is not None
    assert outcome.failure.summary == TEXT
    assert "in task" in outcome.failure.traceback, "where it was canceled"
    assert scene.come_to(task, is_async=True, max_attempts=2).kind is Kind.RETRY


def test_a_coroutine_that_catches_its_cancellation_ends_as_it_ends(scene: Scene) -> None:
    async def task(ending: Callable[[], str]) -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return ending()
        return "never"

    def fail() -> str:
        raise LookupError("mine")

    assert scene.come_to(lambda: task(lambda: "fine"), is_async=True).result == '"fine"'
    outcome = scene.come_to(lambda: task(fail), is_async=True)
    assert outcome.failure is not None
    assert outcome.failure.summary == "LookupError: mine"


def test_a_coroutine_without_a_limit_that_cancels_itself_has_not_exceeded_one(scene: Scene) -> None:
    async def task() -> None:
        raise asyncio.CancelledError

    outcome = scene.come_to(task, seconds=60, is_async=True)
    assert outcome.failure is not None
    assert outcome.failure.path == "asyncio.exceptions.CancelledError"


# Exactly this run, once


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


# Interrupts


@pytest.mark.parametrize("is_async", [False, True])
def test_an_interrupt_beats_a_limit_that_the_task_is_just_getting_over(scene: Scene, is_async: bool) -> None:
    cleaning = threading.Event()

    def task() -> None:
        try:
            spin()
        except TimeoutError:
            cleaning.set()
            spin()

    async def atask() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cleaning.set()
            await asyncio.sleep(60)

    scene.pool.resize(1)
    run = scene.run(atask if is_async else task, is_async=is_async)
    scene.submit(run)
    assert cleaning.wait(PATIENCE_SECONDS)
    scene.interrupter.interrupt(run, Reason.USER)
    run.throw()
    assert scene.outcomes.wait(1) == [Kind.INTERRUPTED]


def test_a_limit_reached_while_the_run_obeys_an_interrupt_is_not_reported(scene: Scene) -> None:
    def task(context: Any) -> None:
        with contextlib.suppress(Interrupted):
            context.wait(60)
        threading.Event().wait(2 * LIMIT)
        raise Interrupted

    scene.pool.resize(1)
    run = scene.run(task, takes_context=True)
    scene.submit(run)
    until(lambda: run.thread_id)
    scene.interrupter.interrupt(run, Reason.SHUTDOWN)
    assert scene.outcomes.wait(1) == [Kind.HANDED_BACK]
    assert not run.expired


def test_a_run_that_is_asked_to_stop_while_it_cleans_up_has_the_time_of_its_interrupt(scene: Scene) -> None:
    cleaning = threading.Event()

    def task() -> None:
        try:
            spin()
        except TimeoutError:
            cleaning.set()
            spin()

    scene.pool.resize(1)
    run = scene.run(task)
    scene.submit(run)
    assert cleaning.wait(PATIENCE_SECONDS)
    scene.interrupter.interrupt(run, Reason.USER)
    assert scene.outcomes.wait(1) == [Kind.INTERRUPTED]
    assert (scene.asked, run.abandoned) == ([], False)


def test_a_limit_that_passed_during_a_request_holds_once_the_request_is_withdrawn(scene: Scene) -> None:
    scene.pool.resize(1)
    run = scene.run(spin)
    scene.submit(run)
    until(lambda: run.thread_id)
    scene.interrupter.interrupt(run, Reason.USER)
    until(lambda: time.monotonic() > (run.began or 0) + 2 * LIMIT)
    run.withdraw()
    scene.outcomes.wait(1)
    failure = scene.outcomes.outcomes[0][1].failure
    assert failure is not None
    assert failure.summary == TEXT


# Runs that do not react


def test_one_without_a_target_is_settled_and_a_spare_thread_takes_its_place(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.pool.resize(1)
    run = scene.run(scene.swallow, number=7)
    began = time.monotonic()
    scene.submit(run)
    assert scene.outcomes.wait(1) == [Kind.ERROR]
    assert LIMIT + GRACE <= time.monotonic() - began < LIMIT + GRACE + 1
    failure = scene.outcomes.outcomes[0][1].failure
    assert failure is not None
    assert failure.summary == TEXT
    assert "The task did not react to that. jobqueue-thread-" in failure.traceback
    assert (scene.interrupter.stuck, scene.asked) == (1, [run])
    assert scene.come_to(lambda: 8).result == "8"
    told = next(message for message in caplog.messages if "stuck" in message)
    assert told.startswith("Job 7 (tests.function) does not react to its time limit; its thread is stuck. jobqueue-thread-")
    assert told.endswith("in wait"), f"the line where it hangs: {told}"
    scene.end.set()
    until(lambda: scene.pool.threads == 1)
    assert scene.interrupter.stuck == 0
    assert len(scene.outcomes.outcomes) == 2, "its late end counts for nothing"


def test_one_that_may_be_tried_again_is(scene: Scene) -> None:
    assert scene.come_to(scene.swallow, max_attempts=2).kind is Kind.RETRY


def test_one_with_a_target_keeps_its_job_running_and_is_shown_as_stuck(scene: Scene) -> None:
    scene.pool.resize(1)
    run = scene.run(scene.swallow, target="customer:7")
    scene.submit(run)
    until(lambda: scene.interrupter.stuck)
    assert (scene.outcomes.outcomes, run.abandoned, scene.pool.threads) == ([], False, 1)
    scene.end.set()
    assert scene.outcomes.wait(1) == [Kind.SUCCESS]
    assert scene.interrupter.stuck == 0


def test_a_task_that_reacts_late_but_within_the_grace_is_not_given_up(scene: Scene) -> None:
    def task() -> str:
        try:
            spin()
        except TimeoutError:
            spin(GRACE / 2)
        return "late"

    assert scene.come_to(task).result == '"late"'
    threading.Event().wait(GRACE)
    assert scene.asked == []


@pytest.mark.parametrize("name", ["aswallow", "block"])
def test_a_coroutine_that_does_not_react_is_settled_and_others_continue(scene: Scene, name: str) -> None:
    assert scene.come_to(getattr(scene, name), is_async=True).kind is Kind.ERROR
    assert scene.interrupter.stuck == 1

    async def fine() -> int:
        return 8

    assert scene.come_to(fine, is_async=True).result == "8"


def test_a_coroutine_with_a_target_that_blocks_the_loop_keeps_its_job_and_others_continue(scene: Scene) -> None:
    scene.pool.resize(2)
    run = scene.run(scene.block, is_async=True, target="customer:7")
    scene.submit(run)
    until(lambda: scene.interrupter.stuck)

    async def fine() -> int:
        return 8

    assert scene.come_to(fine, is_async=True, seconds=None).result == "8"
    assert not run.abandoned


def test_a_run_whose_end_is_being_written_is_not_given_up_on(scene: Scene) -> None:
    run = scene.run(spin, seconds=0.01)
    run.cancel_async = lambda: None
    run.begin_in_loop()
    until(lambda: run.expired)
    run.close()
    threading.Event().wait(GRACE + 0.1)
    assert (scene.asked, scene.interrupter.stuck) == ([], 0)


# Spares


def test_a_limited_number_of_spare_threads_replace_stuck_ones_then_slots_are_lost_until_one_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = Scene(spares=1)
    made.pool.resize(3)
    ends = [threading.Event() for _ in range(3)]

    def swallow(end: threading.Event) -> None:
        while not end.is_set():
            with contextlib.suppress(BaseException):
                end.wait(0.01)

    for number, end in enumerate(ends):
        before = len(made.outcomes.outcomes)
        made.submit(made.run(lambda end=end: swallow(end), number=number))
        made.outcomes.wait(before + 1)
    until(lambda: made.pool.stuck == 3)
    assert (made.pool.size, made.pool.blocked_slots, made.pool.threads) == (1, 2, 3), "the slot of one is free for a spare, two are lost"
    lost = [text for text in caplog.messages if "its slot is lost until one of them ends" in text]
    assert [text[:6] for text in lost] == ["Job 1 ", "Job 2 "]
    assert made.come_to(lambda: 8).result == "8", "what is left works"
    ends[1].set()
    until(lambda: made.pool.blocked_slots == 1)
    assert (made.pool.size, made.pool.stuck) == (2, 2)
    ends[0].set()
    until(lambda: made.pool.stuck == 1)
    made.submit(made.run(made.swallow, number=9))
    until(lambda: made.interrupter.stuck == 2)
    assert (made.pool.size, made.pool.blocked_slots) == (2, 1), "a spare is free again"
    ends[2].set()
    until(lambda: made.pool.size == 3)
    assert made.pool.blocked_slots == 0
    made.close()


def test_the_bound_of_spares_holds_for_interrupts_by_people_and_for_coroutines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobqueue.worker.running.interrupter.THROW_SECONDS", 0.05)
    monkeypatch.setattr("jobqueue.worker.running.interrupter.GIVE_UP_SECONDS", 0.1)
    made = Scene(spares=1)
    made.pool.resize(3)
    runs = [made.run(made.swallow, None, number=1), made.run(made.swallow, None, number=2)]
    runs.append(made.run(made.aswallow, None, number=3, is_async=True))
    made.submit(*runs)
    until(lambda: all(run.began for run in runs))
    for run in runs:
        made.interrupter.interrupt(run, Reason.USER)
    assert made.outcomes.wait(3) == [Kind.INTERRUPTED] * 3
    assert (made.pool.size, made.pool.blocked_slots) == (1, 2)
    made.end.set()
    until(lambda: made.pool.size == 3)
    assert made.pool.blocked_slots == 0
    made.close()


def test_a_lane_of_a_tenant_does_not_make_good_for_lost_slots() -> None:
    lanes = Lanes(lambda: Pool(Collector().put))
    lanes.set_slots({"acme": 2})
    lane = lanes.of("acme")
    lane.pool.remove_slot()
    lanes.set_slots({"acme": 2})
    assert (lane.pool.size, lane.pool.blocked_slots) == (1, 1)
    lane.pool.restore_slot()
    assert lane.pool.size == 2
    lanes.set_slots({})
    lanes.close()
    assert lane.pool.join(time.monotonic() + PATIENCE_SECONDS)


# Where the process can be replaced


def test_if_the_process_is_replaced_the_run_is_not_changed(scene: Scene) -> None:
    scene.replaces = True
    scene.pool.resize(1)
    run = scene.run(scene.swallow)
    scene.submit(run)
    until(lambda: scene.interrupter.stuck)
    assert (scene.asked, run.overdue, run.abandoned, scene.outcomes.outcomes) == ([run], True, False, [])
    assert scene.pool.threads == 1
    scene.interrupter.interrupt(run, Reason.SHUTDOWN)
    outcome = given_up(run)
    assert (outcome.kind, outcome.failure and outcome.failure.summary) == (Kind.ERROR, TEXT), "a failure, and not handed back"
    run.interrupt(Reason.LOST)
    assert given_up(run).kind is Kind.INTERRUPTED


@pytest.mark.parametrize("is_async", [False, True])
def test_an_overdue_run_that_obeys_the_end_of_its_process_has_failed_at_its_limit(scene: Scene, is_async: bool) -> None:
    def task() -> None:
        with contextlib.suppress(TimeoutError):
            spin()
        spin()

    async def atask() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        await asyncio.sleep(60)

    scene.replaces = True
    scene.pool.resize(1)
    run = scene.run(atask if is_async else task, is_async=is_async)
    scene.submit(run)
    until(lambda: scene.asked)
    scene.interrupter.interrupt(run, Reason.SHUTDOWN)
    run.throw()
    scene.outcomes.wait(1)
    outcome = scene.outcomes.outcomes[0][1]
    assert (outcome.kind, outcome.failure and outcome.failure.summary) == (Kind.ERROR, TEXT)


def test_the_end_of_a_process_writes_an_overdue_run_as_a_failure_and_gives_others_back() -> None:
    put, runs = Collector(), [run_of(spin, number=number, max_attempts=2 if number == 3 else 1) for number in (1, 2, 3)]
    for run in (runs[0], runs[2]):
        run.limit, run.expired, run.overdue = LIMIT, True, True
    written: Any = SimpleNamespace(put=lambda run, outcome: (put.put(run, outcome), runs.remove(run)))
    parts: Any = SimpleNamespace(runs=runs, finisher=written)
    assert len(drain._give_up(parts)) == 3
    assert put.wait(3) == [Kind.ERROR, Kind.HANDED_BACK, Kind.RETRY]


@pytest.mark.django_db(transaction=True)
def test_nothing_is_thrown_into_the_rollback_of_a_transactional_task(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []
    run = run_of(spin)

    def fail() -> None:
        raise LookupError

    monkeypatch.setattr(transactional, "_end_what_was_left_open", lambda *_: closed.append(run.closed))
    with pytest.raises(LookupError):
        transactional.call_in_transaction(run, fail, lambda run: Outcome(run.lease, Kind.SUCCESS))
    assert closed == [True]


# What is kept


def test_deadlines_come_in_the_order_of_their_times_and_of_ended_runs_never() -> None:
    kept = Deadlines()
    runs = [run_of(lambda: None, number=number) for number in range(4)]
    assert [kept.add(run, at) for run, at in zip(runs, (3.0, 1.0, 2.0, 0.5), strict=True)] == [True, True, False, True]
    runs[1].ended = 0.0
    assert kept.nearest == (0.5, 3)
    assert [kept.take(2.5), kept.take(2.5), kept.take(2.5), kept.nearest] == [runs[3], runs[2], None, (3.0, 0)]


def test_ended_runs_are_not_kept_for_their_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "MIN_TO_TIDY", 10)
    kept = Deadlines()
    kept._tidy_at = 10
    running = [run_of(lambda: None) for _ in range(8)]
    for run in running:
        kept.add(run, 60.0)
    for _ in range(1000):
        kept.add(run_of(lambda: None), 60.0)
    assert len(kept) <= 2 * 8 + 1
    assert {kept.take(60.0) for _ in range(30)} - {None} == set(running)
