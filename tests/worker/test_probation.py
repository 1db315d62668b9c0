"""Probation: which suspects start, with given times."""

from __future__ import annotations

import pytest

from jobqueue.worker.running.lanes import Lane
from jobqueue.worker.running.pool import Pool
from jobqueue.worker.running.probation import ALONE_SECONDS, WATCH_SECONDS, Probation
from jobqueue.worker.running.run import Run, Runs
from tests.worker.parts import run_of

START = 1000.0


class Scene:
    """Suspects of one process that allows three crashes, and a clock that the test moves."""

    def __init__(self) -> None:
        self.runs, self.now = Runs(), START
        self.probation = Probation(self.runs, 3)
        self._number = 0

    def claim(self, *crashes: int, lane: Lane | None = None) -> list[Run]:
        """Claim suspects that have crashed N times."""
        made = []
        for count in crashes:
            self._number += 1
            plain = run_of(lambda: None, number=self._number, crashes=count)
            run = Run(plain.job, plain.flush, plain.read_result, lane)
            run.claimed_at = self.now
            made.append(run)
        self.runs.add(made)
        self.probation.add(made)
        return made

    def begin(self, *, thread: bool = True) -> Run | None:
        """Start the next suspect, at once in its thread or not, and return it."""
        run = self.probation.next(self.now)
        if run is not None:
            self.probation.begin(run)
            if thread:
                run.began = self.now
        return run

    def end(self, *runs: Run | None) -> None:
        """Acknowledge the outcomes of runs."""
        self.runs.remove([run.lease for run in runs if run is not None])

    def pass_seconds(self, seconds: float) -> None:
        """Move the clock."""
        self.now += seconds


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_suspects_begin_one_at_a_time_each_when_the_last_has_lasted_through_its_watch(scene: Scene) -> None:
    jobs, begun = scene.claim(*[1] * 8), []
    for _ in jobs:
        begun.append(scene.begin())
        assert scene.begin() is None, "no other begins while this one is watched"
        scene.pass_seconds(WATCH_SECONDS)
    assert begun == jobs, "in the order of the claim"


def test_the_next_begins_at_once_when_one_has_ended_earlier(scene: Scene) -> None:
    jobs, begun = scene.claim(*[1] * 7), []
    while run := scene.begin():
        begun.append(run)
        scene.end(run)
    assert begun == jobs


def test_the_watch_begins_when_a_thread_has_taken_the_run(scene: Scene) -> None:
    scene.claim(1, 1)
    first = scene.begin(thread=False)
    assert first is not None
    scene.pass_seconds(5 * WATCH_SECONDS)
    assert scene.begin() is None
    first.began = scene.now
    scene.pass_seconds(WATCH_SECONDS / 2)
    assert scene.begin() is None
    scene.pass_seconds(WATCH_SECONDS / 2)
    assert scene.begin() is not None


def test_a_suspect_waits_for_a_slot_of_its_lane_and_others_pass_it(scene: Scene) -> None:
    full, free = Lane(None, Pool(lambda *_: None)), Lane("other", Pool(lambda *_: None))
    free.pool.size = full.pool.size = 1
    full.busy = 1
    (first,), (second,) = scene.claim(1, lane=full), scene.claim(1, lane=free)
    assert scene.begin() is second
    scene.end(second)
    assert scene.begin() is None
    full.busy -= 1
    assert scene.begin() is first


def test_a_suspect_whose_start_was_not_written_keeps_waiting(scene: Scene) -> None:
    locked, free = scene.claim(1, 1)
    assert scene.probation.next(scene.now) is locked
    assert scene.probation.next(scene.now) is locked
    scene.end(locked)
    assert scene.probation.take_waiting(scene.now + 1) == [locked, free]


def test_the_less_often_a_job_has_crashed_the_sooner_it_begins(scene: Scene) -> None:
    last, mild = scene.claim(2, 1)
    assert scene.begin() is mild
    scene.end(mild)
    assert scene.begin() is last


@pytest.mark.parametrize("crashes", [2, 3])
def test_one_suspect_at_a_time_runs_on_its_last_chance(scene: Scene, crashes: int) -> None:
    first, second, third = scene.claim(crashes, 2, 2)
    jobs = sorted((first, second, third), key=lambda run: run.job.crashes)
    for job in jobs:
        assert scene.begin() is job
        scene.pass_seconds(10 * ALONE_SECONDS)
        assert scene.begin() is None
        scene.end(job)


def test_no_other_suspect_begins_beside_one_on_its_last_chance(scene: Scene) -> None:
    scene.claim(2)
    last = scene.begin()
    scene.claim(1)
    scene.pass_seconds(10 * ALONE_SECONDS)
    assert scene.begin() is None
    scene.end(last)
    assert scene.begin() is not None


def test_a_last_chance_is_taken_beside_suspects_that_have_run_for_a_minute(scene: Scene) -> None:
    scene.claim(1)
    scene.begin()
    (last,) = scene.claim(2)
    scene.pass_seconds(ALONE_SECONDS - 1)
    assert scene.begin() is None
    scene.pass_seconds(1)
    assert scene.begin() is last


def test_a_suspect_that_waits_for_a_long_run_is_put_off(scene: Scene) -> None:
    scene.claim(2)
    last = scene.begin()
    waiting = scene.claim(1, 2)
    assert scene.probation.take_blocked(scene.now) == [], "it may be over soon"
    scene.pass_seconds(WATCH_SECONDS)
    assert scene.probation.take_blocked(scene.now) == waiting
    assert scene.probation.waiting == []
    scene.end(last)


def test_a_last_chance_is_put_off_while_others_are_in_their_first_minute(scene: Scene) -> None:
    scene.claim(1)
    scene.begin()
    mild, last = scene.claim(1, 2)
    scene.pass_seconds(WATCH_SECONDS)
    assert scene.probation.take_blocked(scene.now) == [last]
    assert scene.begin() is mild
    scene.pass_seconds(ALONE_SECONDS)
    scene.claim(2)
    assert scene.probation.take_blocked(scene.now) == []


def test_runs_that_have_waited_too_long_are_removed_and_the_others_stay(scene: Scene) -> None:
    old = scene.claim(1, 2)
    scene.pass_seconds(1)
    (new,) = scene.claim(1)
    assert scene.probation.take_waiting(scene.now) == old
    assert scene.begin() is new


def test_a_second_run_of_the_same_job_is_another_suspect(scene: Scene) -> None:
    first = run_of(lambda: None, crashes=1, lease_token=1)
    second = run_of(lambda: None, crashes=1, lease_token=2)
    scene.runs.add([first, second])
    scene.probation.add([first])
    assert scene.begin() is first
    scene.end(first)
    scene.probation.add([second])
    assert scene.begin() is second
