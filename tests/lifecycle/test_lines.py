"""The lines behind targets, as pages show them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from jobqueue import clock
from jobqueue.insight import targets as module
from jobqueue.insight.targets import TargetSummary, target_summaries
from tests.factories import JobFactory

pytestmark = pytest.mark.django_db
SEVEN = {"target": "customer:7"}
NOW = clock.now()  # the tests' parameters are made of it long before they run


def ago(**delta: float) -> Any:
    return NOW - timedelta(**delta)


def parked(count: int = 1, **values: Any) -> Any:
    return JobFactory.create_batch(count, **{**SEVEN, "waiting_for_target": True, **values})


def names(found: list[TargetSummary]) -> list[str]:
    return [line.target for line in found]


@pytest.mark.parametrize(
    ("trait", "values", "since"),
    [
        ("running", {"started_at": ago(minutes=3)}, 3),
        ("error", {"holds_target": True, "finished_at": ago(minutes=4)}, 4),
        ("error", {"holds_target": False, "finished_at": ago(minutes=4)}, 4),
        ("queued", {"holds_target": True, "enqueued_at": ago(minutes=5)}, 5),
        ("paused", {"holds_target": True, "history": [{"outcome": "PAUSED", "finished_at": ago(minutes=6).isoformat()}]}, 6),
        ("waiting_for_retry", {"holds_target": True, "history": [{"outcome": "RETRY", "finished_at": ago(minutes=7).isoformat()}]}, 7),
        ("paused", {}, None),
        ("paused", {"history": {"odd": 1}}, None),
        ("paused", {"history": [{"outcome": "PAUSED", "finished_at": "yesterday"}]}, None),
        ("paused", {"history": [{"outcome": "PAUSED", "finished_at": "2026-01-01T00:00:00"}]}, None),
    ],
)
def test_a_line_names_the_job_that_blocks_it_and_since_when(trait: str, values: dict[str, Any], since: int | None) -> None:
    holder = JobFactory(**SEVEN, task="shop.tasks.sync", **{trait: True}, **values)
    parked(3, enqueued_at=ago(minutes=2))
    [line] = target_summaries()
    assert (line.tenant, line.target, line.holder_id, line.holder_task) == ("", "customer:7", holder.pk, "shop.tasks.sync")
    assert (line.holder_status, line.waiting, line.waiting_is_capped) == (holder.status, 3, False)
    if since is None:
        assert line.since is None
    else:
        assert abs(ago(minutes=since) - line.since) < timedelta(seconds=30)
    assert abs(ago(minutes=2) - line.oldest_waiting_at) < timedelta(seconds=30)


def test_a_free_target_with_waiting_jobs_has_no_holder() -> None:
    JobFactory(**SEVEN)
    parked()
    [line] = target_summaries()
    assert (line.holder_id, line.holder_status, line.holder_task, line.since, line.waiting) == (None, "", "", None, 2)


def test_a_held_target_without_waiting_jobs_is_a_line_too() -> None:
    JobFactory(**SEVEN, running=True)
    [line] = target_summaries()
    assert (line.waiting, line.oldest_waiting_at, line.stuck) == (0, None, False)


def test_scheduled_and_ended_jobs_make_no_line() -> None:
    for trait in ("scheduled", "success", "canceled"):
        JobFactory(**SEVEN, **{trait: True})
    JobFactory()
    assert target_summaries() == []


def test_a_holder_that_waits_to_run_again_is_stopped_by_one_that_blocks() -> None:
    JobFactory(**SEVEN, holds_target=True)
    blocker = JobFactory(**SEVEN, paused=True)
    parked()
    [line] = target_summaries()
    assert (line.holder_id, line.holder_status, line.waiting) == (blocker.pk, "PAUSED", 1)


def test_a_running_holder_comes_before_one_that_blocks() -> None:
    holder = JobFactory(**SEVEN, running=True)
    JobFactory(**SEVEN, error=True)
    assert [line.holder_id for line in target_summaries()] == [holder.pk]


def test_lines_that_wait_for_a_person_come_first_then_those_who_wait_longest() -> None:
    JobFactory(target="busy", running=True)
    JobFactory(target="b", waiting_for_target=True, enqueued_at=ago(minutes=1))
    JobFactory(target="a", waiting_for_target=True, enqueued_at=ago(minutes=9))
    JobFactory(target="failed", error=True)
    JobFactory(target="stuck", error=True)
    JobFactory(target="stuck", waiting_for_target=True)
    assert names(target_summaries())[:3] == ["stuck", "a", "b"]
    assert {*names(target_summaries())[3:]} == {"busy", "failed"}
    assert names(target_summaries(limit=2)) == ["stuck", "a"]


def test_lines_are_found_by_a_part_of_their_name_and_by_tenant() -> None:
    for tenant in ("", "acme"):
        parked(tenant=tenant)
        parked(tenant=tenant, target="Order:12")
    assert len(target_summaries()) == 4
    assert names(target_summaries(search="order")) == ["Order:12", "Order:12"]
    assert [(line.tenant, line.target) for line in target_summaries(search="CUSTOMER", tenant="acme")] == [("acme", "customer:7")]
    assert [(line.tenant, line.target) for line in target_summaries(search="customer:7", tenant="")] == [("", "customer:7")]
    assert target_summaries(search="nothing") == target_summaries(tenant="nobody") == []


def test_a_complete_name_is_found_beyond_the_window_of_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SEARCHED", 2)
    for number in range(5):
        parked(target=f"t{number}", tenant="acme")
    assert names(target_summaries(search="t4")) == ["t4"]
    assert names(target_summaries(search="t")) == ["t0", "t1"]


def test_the_oldest_is_found_whatever_its_priority_and_counts_end_at_their_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    parked(priority=-5, enqueued_at=ago(hours=1))
    parked(4, priority=5)
    [line] = target_summaries()
    assert (line.waiting, line.waiting_is_capped) == (5, False)
    assert abs(ago(hours=1) - line.oldest_waiting_at) < timedelta(seconds=30)
    monkeypatch.setattr(module, "MAX_COUNTED", 4)
    [line] = target_summaries()
    assert (line.waiting, line.waiting_is_capped) == (5, True)


@pytest.mark.parametrize("text", ["%", "_", "'", '"', "\\", "<b>", "customer:7' --"])
def test_an_odd_search_finds_only_what_has_it(text: str) -> None:
    parked()
    parked(target=f"a{text}b")
    assert names(target_summaries(search=text)) == [f"a{text}b"]


# What it costs


def statements() -> int:
    with CaptureQueriesContext(connection) as captured:
        target_summaries()
    return len(captured)


def test_many_lines_take_as_many_statements_as_one() -> None:
    def line(name: str) -> None:
        JobFactory(target=name, paused=True)
        parked(2, target=name)
        JobFactory(target=name)

    line("t0")
    one = statements()
    for number in range(1, 20):
        line(f"t{number}")
    assert (statements(), len(target_summaries())) == (one, 20)
