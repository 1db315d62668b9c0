"""Probation: which suspects begin, with every time passed in."""

from __future__ import annotations

import pytest

from jobqueue.worker.running.probation import ALONE_SECONDS, WATCH_SECONDS, Probation
from jobqueue.worker.running.run import Run, Runs
from tests.worker.parts import run_of

START = 1000.0


class Scene:
    """Suspects of one process that allows three crashes, and a clock that the test moves."""

    def __init__(self, free: int = 100) -> None:
        self.runs, self.now, self.free = Runs(), START, free
        self.begun: list[Run] = []
        self.probation = Probation(self.runs, 3, self.begun)
        self._number = 0

    def claim(self, *crashes: int) -> list[Run]:
        """Claim suspects that have crashed so often."""
        made = []
        for count in crashes:
            self._number += 1
            run = run_of(lambda: None, number=self._number, crashes=count)
            run.claimed_at = self.now
            made.append(run)
        self.runs.add(made)
        self.probation.add(made)
        return made

    def look(self, *, threads: bool = True) -> list[Run]:
        """Let the next group begin, at once in its threads or not, and return it."""
        group = self.probation.next_group(self.free, self.now)
        self.probation.begin(group)
        if threads:
            self.enter(*group)
        return group

    def enter(self, *runs: Run) -> None:
        """Let runs enter their tasks now."""
        for run in runs:
            run.began = self.now

    def end(self, *runs: Run) -> None:
        """Settle runs."""
        self.runs.remove([run.lease for run in runs])

    def pass_seconds(self, seconds: float) -> None:
        """Move the clock as the dispatcher sees it, which looks often while somebody waits."""
        while len(self.probation) and seconds > WATCH_SECONDS / 4:
            self.now += WATCH_SECONDS / 4
            seconds -= WATCH_SECONDS / 4
            self.probation.next_group(0, self.now)
        self.now += seconds


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_groups_double_as_each_lasts_through_its_watch(scene: Scene) -> None:
    jobs = scene.claim(*[1] * 20)
    groups = []
    for _ in range(5):
        groups.append(scene.look())
        assert scene.look() == [], "no group begins while the one before is watched"
        scene.pass_seconds(WATCH_SECONDS)
    assert [len(group) for group in groups] == [1, 2, 4, 8, 5]
    assert [run for group in groups for run in group] == jobs, "in the order of the claim"


def test_eight_long_suspects_are_all_back_within_three_watches(scene: Scene) -> None:
    scene.claim(*[1] * 8)
    began = scene.now
    while len(scene.probation):
        if not scene.look():
            scene.pass_seconds(WATCH_SECONDS / 10)
    assert scene.now - began <= 3 * WATCH_SECONDS + 0.5


def test_a_group_that_is_over_earlier_makes_way_at_once(scene: Scene) -> None:
    scene.claim(*[1] * 7)
    sizes = []
    while group := scene.look():
        sizes.append(len(group))
        scene.end(*group)
    assert sizes == [1, 2, 4]


def test_one_of_a_group_that_is_not_over_holds_the_next_back(scene: Scene) -> None:
    scene.claim(*[1] * 7)
    scene.end(*scene.look())
    first, second = scene.look()
    scene.end(first)
    assert scene.look() == []
    scene.end(second)
    assert len(scene.look()) == 4


def test_the_watch_begins_when_a_thread_has_taken_the_run(scene: Scene) -> None:
    scene.claim(1, 1)
    group = scene.look(threads=False)
    scene.pass_seconds(5 * WATCH_SECONDS)
    assert scene.look() == []
    scene.enter(*group)
    scene.pass_seconds(WATCH_SECONDS / 2)
    assert scene.look() == []
    scene.pass_seconds(WATCH_SECONDS / 2)
    assert len(scene.look()) == 1


def test_no_more_begin_than_there_are_free_slots(scene: Scene) -> None:
    scene.claim(*[1] * 9)
    scene.free = 0
    assert scene.look() == []
    scene.free = 3
    sizes = []
    while group := scene.look():
        sizes.append(len(group))
        scene.end(*group)
    assert sizes == [1, 2, 3, 3]


def test_what_was_not_written_goes_on_waiting_and_makes_no_group_larger(scene: Scene) -> None:
    locked, free = scene.claim(1, 1)
    assert scene.probation.next_group(8, scene.now) == [locked]
    scene.probation.begin([])
    assert (len(scene.probation), scene.probation.next_group(8, scene.now)) == (2, [locked])
    scene.end(locked)
    assert scene.probation.take_waiting(scene.now + 1) == [locked, free]


def test_after_a_quiet_while_the_next_suspects_begin_carefully_again(scene: Scene) -> None:
    scene.claim(*[1] * 7)
    while group := scene.look():
        scene.end(*group)
    scene.pass_seconds(WATCH_SECONDS / 2)
    scene.claim(*[1] * 8)
    assert len(scene.look()) == 8, "a stream of them is not slowed down each time"
    scene.end(*scene.runs)
    scene.pass_seconds(WATCH_SECONDS * 1.1)
    scene.claim(*[1] * 8)
    assert len(scene.look()) == 1


def test_the_less_often_a_job_has_crashed_the_sooner_it_begins(scene: Scene) -> None:
    last, mild = scene.claim(2, 1)
    assert scene.look() == [mild]
    scene.end(mild)
    assert scene.look() == [last]


@pytest.mark.parametrize("crashes", [2, 3])
def test_one_suspect_at_a_time_runs_on_its_last_chance(scene: Scene, crashes: int) -> None:
    first, second, third = scene.claim(crashes, 2, 2)
    jobs = sorted((first, second, third), key=lambda run: run.job.crashes)
    for job in jobs:
        assert scene.look() == [job]
        scene.pass_seconds(10 * ALONE_SECONDS)
        assert scene.look() == []
        scene.end(job)


def test_no_other_suspect_begins_beside_one_on_its_last_chance(scene: Scene) -> None:
    scene.claim(2)
    (last,) = scene.look()
    scene.claim(1)
    scene.pass_seconds(10 * ALONE_SECONDS)
    assert scene.look() == []
    scene.end(last)
    assert len(scene.look()) == 1


def test_a_last_chance_is_taken_beside_suspects_that_have_run_for_a_minute(scene: Scene) -> None:
    scene.claim(1)
    scene.look()
    (last,) = scene.claim(2)
    scene.pass_seconds(ALONE_SECONDS - 1)
    assert scene.look() == []
    scene.pass_seconds(1)
    assert scene.look() == [last]


def test_a_last_chance_does_not_make_the_next_group_larger(scene: Scene) -> None:
    scene.claim(2, 2)
    for _ in range(2):
        scene.end(*scene.look())
    scene.claim(1, 1)
    assert len(scene.look()) == 1


def test_whoever_waits_for_a_long_run_is_put_off(scene: Scene) -> None:
    scene.claim(2)
    (last,) = scene.look()
    waiting = scene.claim(1, 2)
    assert scene.probation.take_last_chance(scene.now) == [], "it may be over soon"
    scene.pass_seconds(WATCH_SECONDS)
    assert scene.probation.take_last_chance(scene.now) == waiting
    assert len(scene.probation) == 0
    scene.end(last)


def test_a_last_chance_is_put_off_while_others_are_in_their_first_minute(scene: Scene) -> None:
    scene.claim(1)
    scene.look()
    mild, last = scene.claim(1, 2)
    scene.pass_seconds(WATCH_SECONDS)
    assert scene.probation.take_last_chance(scene.now) == [last]
    assert scene.look() == [mild]
    scene.pass_seconds(ALONE_SECONDS)
    scene.claim(2)
    assert scene.probation.take_last_chance(scene.now) == []


def test_those_that_have_waited_too_long_are_taken_out_and_the_others_stay(scene: Scene) -> None:
    old = scene.claim(1, 2)
    scene.pass_seconds(1)
    (new,) = scene.claim(1)
    assert scene.probation.take_waiting(scene.now) == old
    assert scene.look() == [new]


def test_another_lane_has_groups_of_its_own_but_the_last_chance_is_one_for_all(scene: Scene) -> None:
    mild, last = run_of(lambda: None, number=101, crashes=1), run_of(lambda: None, number=102, crashes=2)
    other = Probation(scene.runs, 3, scene.begun)
    scene.runs.add([mild, last])
    scene.claim(1, 2)
    scene.look()
    other.add([mild, last])
    assert other.next_group(8, scene.now) == [mild], "its first group waits for no other lane's"
    other.begin([mild])
    scene.enter(mild)
    scene.end(mild)
    assert other.next_group(8, scene.now) == [], "the other lane's suspect has just begun"
    scene.pass_seconds(ALONE_SECONDS)
    assert other.next_group(8, scene.now) == [last]
    other.begin([last])
    scene.enter(last)
    assert scene.look() == []
    scene.pass_seconds(WATCH_SECONDS)
    assert len(scene.probation.take_last_chance(scene.now)) == 1


def test_a_second_run_of_the_same_job_is_another_suspect(scene: Scene) -> None:
    first = run_of(lambda: None, crashes=1, lease_token=1)
    second = run_of(lambda: None, crashes=1, lease_token=2)
    scene.runs.add([first, second])
    scene.probation.add([first])
    assert scene.look() == [first]
    scene.end(first)
    scene.probation.add([second])
    assert scene.look() == [second]
