"""Runs that do not react to their time limit: what replaces them, and what becomes of them when their process ends."""

import asyncio
import contextlib
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from jobqueue.lifecycle.outcome import Kind, Outcome
from jobqueue.worker.process import drain
from jobqueue.worker.running import transactional
from jobqueue.worker.running.lanes import Lanes
from jobqueue.worker.running.pool import Pool
from jobqueue.worker.running.run import Reason
from jobqueue.worker.running.stuck import given_up
from tests.worker.limited import GRACE, LIMIT, TEXT, Scene, spin, until
from tests.worker.parts import PATIENCE_SECONDS, Collector, run_of

# Runs that do not react


def test_one_without_a_target_is_settled_and_a_spare_thread_takes_its_place(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.pool.resize(1)
    run = scene.run(scene.swallow, number=7)
    began = time.monotonic()
    scene.submit(run)
    assert scene.outcomes.wait(1) == [Kind.ERROR]
    assert LIMIT + GRACE <= time.monotonic() - began < LIMIT + GRACE + 5
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


@pytest.mark.long
@pytest.mark.parametrize("name", ["aswallow", "block"])
def test_a_coroutine_that_does_not_react_is_settled_and_others_continue(scene: Scene, name: str) -> None:
    assert scene.come_to(getattr(scene, name), is_async=True).kind is Kind.ERROR
    assert scene.interrupter.stuck == 1

    async def fine() -> int:
        return 8

    assert scene.come_to(fine, is_async=True).result == "8"


@pytest.mark.long
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


@pytest.mark.long
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
