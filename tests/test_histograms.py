"""Histograms of durations: quantiles within one bucket of the exact value, sums, and their text."""

from __future__ import annotations

import itertools
import random

import pytest

from jobqueue.core import histograms
from jobqueue.core.histograms import BOUNDS


def test_the_bounds_rise_from_a_millisecond_to_more_than_a_day() -> None:
    assert BOUNDS[0] == 0.001
    assert BOUNDS[-1] > 86400
    assert all(high / low == pytest.approx(2**0.5) for low, high in itertools.pairwise(BOUNDS))


@pytest.mark.parametrize("spread", ["lognormal", "uniform", "two values", "quick"])
def test_a_quantile_of_100000_durations_is_in_the_bucket_of_the_exact_one(spread: str) -> None:
    chance = random.Random(7)
    draw = {
        "lognormal": lambda: chance.lognormvariate(-1, 2),
        "uniform": lambda: chance.uniform(0, 100),
        "two values": lambda: chance.choice([0.01, 30.0]),
        "quick": lambda: chance.uniform(0, 0.002),
    }[spread]
    durations = sorted(draw() for _ in range(100_000))
    counts = histograms.of(durations)
    assert sum(counts) == 100_000
    for share in (0.5, 0.95, 0.99):
        estimate = histograms.quantile(counts, share)
        assert estimate is not None
        exact = durations[round(share * 100_000) - 1]
        assert abs(histograms.bucket(estimate) - histograms.bucket(exact)) <= 1, (share, estimate, exact)


def test_histograms_add_up() -> None:
    first, second = histograms.of([0.01, 5]), histograms.of([0.01])
    histograms.add(second, first)
    assert second == histograms.of([0.01, 0.01, 5])


def test_nothing_has_no_quantile_and_the_last_bucket_its_beginning() -> None:
    assert histograms.quantile([], 0.5) is None
    assert histograms.quantile([0, 0], 0.5) is None
    assert histograms.quantile(histograms.of([10.0**9]), 0.5) == BOUNDS[-1]


def test_a_histogram_is_stored_as_text() -> None:
    counts = histograms.of([0.0005, 0.004, 1000])
    assert histograms.from_text(histograms.to_text(counts)) == counts
    assert histograms.from_text("") == []


@pytest.mark.parametrize("text", ["x", "1,-2", "1,,2", None, b"\xff", ",".join(["1"] * 100)])
def test_a_text_that_is_no_histogram_is_an_empty_one(text: object) -> None:
    assert histograms.from_text(text) == []
