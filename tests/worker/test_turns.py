"""Turns: which tenant is served next, and its share of the free slots."""

from __future__ import annotations

import pytest

from jobqueue.worker.running.round_robin import RoundRobin, share


def turns(*tenants: str) -> RoundRobin:
    made = RoundRobin()
    for tenant in tenants:
        made.notified(tenant)
    return made


def test_turns_follow_the_order_of_the_tenants_first_notifications() -> None:
    made = turns("b", "a", "", "b")
    assert (list(made.round()), len(made)) == (["b", "a", ""], 3)


def test_a_served_tenant_comes_last() -> None:
    made = turns("a", "b", "c")
    made.served("a")
    assert list(made.round()) == ["b", "c", "a"]
    made.served("unknown")
    assert list(made.round()) == ["b", "c", "a"]


def test_a_tenant_without_jobs_has_no_turn_until_the_next_notification() -> None:
    made = turns("a", "b")
    assert made.drop("a")
    assert not made.drop("a")
    assert list(made.round()) == ["b"]
    made.notified("a")
    assert list(made.round()) == ["b", "a"]


def test_a_round_that_has_started_is_not_changed_by_notifications() -> None:
    made = turns("a", "b")
    begun = made.round()
    made.notified("c")
    made.drop("b")
    assert list(begun) == ["a", "b"]


def test_a_tenant_with_a_notification_does_not_wait_for_all_tenants_that_were_found() -> None:
    made = RoundRobin()
    for tenant in ("found-1", "found-2", "found-3"):
        made.found(tenant)
    made.notified("told-1")
    made.notified("told-2")
    made.found("told-2")
    made.notified("found-3")
    assert list(made.round()) == ["told-1", "found-1", "told-2", "found-2", "found-3"]


def test_a_tenant_with_repeated_notifications_starves_no_tenant_that_was_found() -> None:
    made = RoundRobin()
    for tenant in ("found-1", "found-2"):
        made.found(tenant)
    order = []
    for _ in range(4):
        made.notified("told")
        order.append(made.round()[0])
        made.served(order[-1])
        made.drop(order[-1])
    assert order == ["told", "found-1", "told", "found-2"]


@pytest.mark.parametrize(("slots", "tenants", "expected"), [(8, 1, 8), (8, 2, 4), (8, 3, 3), (1, 3, 1), (3, 1000, 1), (0, 3, 0)])
def test_a_share_is_an_even_part_rounded_up(slots: int, tenants: int, expected: int) -> None:
    assert share(slots, tenants) == expected
