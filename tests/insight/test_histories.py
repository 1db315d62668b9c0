"""The load of all queues or tasks over a range."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from jobqueue.core import histograms
from jobqueue.core.loads import RINGS, Load
from jobqueue.insight import histories, samples
from jobqueue.models import Sample

pytestmark = pytest.mark.django_db
NOW = 1_800_000_307


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "now", lambda: float(NOW))


def sample(begins: int, seconds: int = 10, name: str = "mail", kind: str = "queue", **values: Any) -> None:
    ring = {ring.seconds: ring for ring in RINGS.values()}[seconds]
    slot = begins // seconds % (ring.kept // seconds)
    Sample.objects.create(kind=kind, name=name, seconds=seconds, slot=slot, begins=begins, **Load(**values).columns())


def end() -> int:
    return histories.histories("queue", "1h").end


def test_the_points_of_an_hour_have_sums_and_the_highest_depths() -> None:
    first = end() - 1200
    for position, depth in enumerate((5, 9, 2)):
        sample(first + 10 * position, queued=depth, enqueued=10, succeeded=4, failed=1)
    found = histories.histories("queue", "1h")
    busy = [load for load in found.by_name["mail"].points if load.weight]
    assert sum(load.enqueued for load in busy) == 30
    assert max(load.queued for load in busy) == 9
    assert found.total.ended == 15
    assert len(found.points) == found.number == 120


def test_a_long_range_counts_each_time_once() -> None:
    last = end()
    quarter = (last - histories.UNSUMMED_SECONDS) // 900 * 900
    minute = (last - histories.UNSUMMED_SECONDS) // 60 * 60
    sample(quarter - 900, 900, enqueued=1000)
    sample(quarter - 120, 60, enqueued=500)  # already a part of the quarter of an hour
    if quarter < minute:
        sample(quarter, 60, enqueued=100)
    sample(minute, 10, enqueued=10)
    wanted = 1010 + (100 if quarter < minute else 0)
    for period in ("24h", "14d"):
        assert histories.histories("queue", period).total.enqueued == wanted


def test_the_last_point_counts_per_second_of_the_part_that_has_ended() -> None:
    last = end()
    sample(last - 10, enqueued=50)
    found = histories.histories("queue", "1h")
    rates = found.rates(load.enqueued for load in found.points)
    assert rates[-1] == 50 / found.seconds(found.number - 1)
    assert found.seconds(found.number - 1) in (10, 20, 30)


def test_all_queues_cost_three_statements() -> None:
    for name in ("mail", "index", "covers"):
        sample(end() - 100, name=name, enqueued=1)
    with CaptureQueriesContext(connection) as queries:
        found = histories.histories("queue", "1h")
        histories.add_histograms("queue", "1h", list(found.by_name.values()))
    # A savepoint has more: only a test reads in a transaction.
    assert len([query for query in queries if "jobqueue_sample" in query["sql"]]) == 3


def test_histograms_add_up_over_the_range() -> None:
    for position, waits in enumerate(([1.0, 2.0], [2.0])):
        sample(end() - 100 + 10 * position, succeeded=1, waits=histograms.of(waits), runs=histograms.of([0.5]))
    found = histories.histories("queue", "1h").by_name["mail"]
    histories.add_histograms("queue", "1h", [found], ["waits"])
    assert found.total.waits == histograms.of([1.0, 2.0, 2.0])
    assert found.total.runs == []


@pytest.mark.parametrize(
    ("depths", "growth"), [(range(0, 300, 10), "grows"), (range(300, 0, -10), "falls"), ([100, 101] * 15, "steady"), ([0] * 30, "steady")]
)
def test_the_growth_of_a_queue_comes_from_its_last_minutes(depths: Any, growth: str) -> None:
    last = end()
    for position, depth in enumerate(depths):
        sample(last - 300 + 10 * position, queued=depth, running=1)
    found = histories.histories("queue", "1h").by_name["mail"].growth_per_second
    assert {"grows": found == pytest.approx(1, rel=0.1), "falls": found == pytest.approx(-1, rel=0.1), "steady": found == 0}[growth]


def test_one_queue_can_be_read_alone() -> None:
    for name in ("mail", "index"):
        sample(end() - 100, name=name, enqueued=1)
    assert [*histories.histories("queue", "1h", "mail").by_name] == ["mail"]


def test_the_sum_of_histograms_as_texts_is_that_of_their_lists() -> None:
    texts = ["1,2,3", "", "0,1", "no histogram", "4"]
    summed: list[int] = []
    for text in texts:
        histograms.add(summed, histograms.from_text(text))
    assert histograms.total(texts) == summed == [5, 3, 3]
    assert histograms.total([]) == []
