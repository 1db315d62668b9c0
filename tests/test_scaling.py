"""The autoscaling signal: simulated over the load of a day, a steady load, and bursts."""

from __future__ import annotations

import itertools
import math
import random
from collections import deque
from collections.abc import Callable, Iterator

import pytest

from jobqueue.core import histograms
from jobqueue.core.loads import Load
from jobqueue.core.scaling import MINUTES, slots_wanted, step

TICK = 10
DELAY_SECONDS = 30  # from a change of the signal to the slots


class Site:
    """A queue whose slots follow the signal, which is queried every 30 seconds."""

    def __init__(self, run_seconds: float, target_seconds: float = 300) -> None:
        self.chance = random.Random(7)
        self.run_seconds, self.target_seconds = run_seconds, target_seconds
        self.minutes: deque[Load] = deque((Load() for _ in range(MINUTES)), maxlen=MINUTES)
        self.slots, self.wanted, self.later = 0, 0, deque[int]([0] * (DELAY_SECONDS // TICK))
        self.queued, self.credit, self.second = 0, 0.0, 0

    def live(self, seconds: float, rate: Callable[[float], float]) -> Iterator[int]:
        """Simulate some time; yield the signal whenever it was queried."""
        for _ in range(int(seconds / TICK)):
            if self.second % 60 == 0:
                self.minutes.append(Load())
            came = self.poisson(rate(self.second) * TICK)
            self.queued += came
            ended = self.work()
            now = self.minutes[-1]
            now.enqueued += came
            now.queued = max(now.queued, self.queued)
            if ended:
                now.run_seconds += (
                    sum(self.chance.expovariate(1 / self.run_seconds) for _ in range(ended)) if ended < 50 else (ended * self.run_seconds)
                )
                histograms.increase(now.runs, histograms.bucket(self.run_seconds), ended)
            self.second += TICK
            if self.second % 30 == 0:
                self.wanted = slots_wanted([*self.minutes], self.target_seconds)
                yield self.wanted
            self.later.append(self.wanted)
            self.slots = self.later.popleft()

    def work(self) -> int:
        self.credit = min(self.credit + self.slots * TICK / self.run_seconds, self.queued + 1.0)
        ended = min(int(self.credit), self.queued)
        self.credit -= ended
        self.queued -= ended
        return ended

    def poisson(self, mean: float) -> int:
        if mean > 50:
            return max(round(self.chance.gauss(mean, math.sqrt(mean))), 0)
        found, limit, product = 0, math.exp(-mean), self.chance.random()
        while product > limit:
            found, product = found + 1, product * self.chance.random()
        return found


def most_changes(signals: list[int], minutes: int = 10) -> int:
    """Return the highest number of changes in any ten minutes."""
    changes = [before != after for before, after in itertools.pairwise(signals)]
    return max(sum(changes[begin : begin + 2 * minutes]) for begin in range(len(changes)))


@pytest.mark.parametrize(
    ("rate", "run"), [(20.0, 0.5), (3.0, 2.0), (0.5, 8.0), (0.05, 20.0), (0.005, 30.0), (200.0, 0.05), (0.02, 600.0), (0.1, 60.0)]
)
def test_a_steady_load_changes_the_signal_at_most_twice_in_ten_minutes(rate: float, run: float) -> None:
    site = Site(run)
    for _ in site.live(2 * 3600, lambda _: rate):
        pass
    signals = [*site.live(12 * 3600, lambda _: rate)]
    assert most_changes(signals) <= 2
    assert rate * run <= max(signals) <= max(3 * rate * run, 4)


def test_the_signal_follows_a_day_and_the_backlog_stays_small() -> None:
    def of_day(second: float) -> float:
        return 6 * max(math.sin(math.pi * (second / 3600 - 6) / 14), 0.02) if 6 <= second / 3600 % 24 <= 20 else 0.1

    site, found, waits = Site(2.0), list[int](), list[float]()
    for wanted in site.live(24 * 3600, of_day):
        found.append(wanted)
        waits.append(site.queued / max(of_day(site.second), 0.1))
    assert most_changes(found) <= 3, "the load itself changes"
    assert sorted(waits)[int(len(waits) * 0.99)] < 60
    needed = sum(of_day(second) * 2.0 for second in range(0, 24 * 3600, 30))
    assert sum(found) < 2 * needed, "not twice the slots that are needed"


@pytest.mark.parametrize("target", [60, 300, 1800])
@pytest.mark.parametrize(("jobs", "run"), [(300, 1.0), (20_000, 0.5), (500, 20.0)])
def test_the_backlog_of_a_burst_is_gone_within_its_target(target: int, jobs: int, run: float) -> None:
    site = Site(run, target)
    for _ in site.live(2 * 3600, lambda _: 0.5):
        pass
    site.queued += jobs
    site.minutes[-1].enqueued += jobs
    for _ in site.live(target + DELAY_SECONDS, lambda _: 0.5):
        pass
    assert site.queued < 10 + 0.5 * run


def test_nothing_needs_no_slot_and_unknown_jobs_one_each() -> None:
    assert slots_wanted([Load()] * MINUTES, 300) == 0
    assert slots_wanted([], 300) == 0
    assert slots_wanted([Load(queued=5, running=3)], 300) == step(8 * 1.2)


def test_each_step_is_at_least_two_fifths_higher_than_the_one_before() -> None:
    steps = sorted({step(slots / 10) for slots in range(1, 10_000)})
    assert steps[:10] == [1, 2, 3, 5, 7, 10, 14, 20, 28, 40]
    assert all(step(number) == number for number in steps)
    assert step(0) == 0
    assert step(0.001) == 1
