"""Verbs in any order, on any connection: only moves of the table of states happen, and no job is lost or ends twice."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connections
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import settings as profile
from hypothesis.stateful import run_state_machine_as_test

from tests.lifecycle.lines_machine import Lines
from tests.lifecycle.machine import Lifecycle
from tests.pooler import POOLED

# On SQLite less can be found: it has one writer at a time.
EXAMPLES = int(os.environ.get("STATE_MACHINE_EXAMPLES", "500" if os.environ.get("TEST_DATABASE") != "sqlite" else "150"))
STEPS = 50
PARTS = 4
# Nothing here needs to survive the server. A verb that waits for a lock although it must skip the row fails soon.
FAST = {"postgresql": "SET synchronous_commit = off; SET lock_timeout = '3s'", "sqlite": "PRAGMA synchronous = OFF"}


@pytest.fixture
def parties(transactional_db: Any) -> Iterator[list[Any]]:
    """Open the connections: two for the verbs and, if rows can be locked one by one, one for another client."""
    first = connections["default"]
    number = 3 if first.vendor == "postgresql" else 2
    opened = [first, *(type(first)(first.settings_dict, alias="default") for _ in range(number - 1))]
    for one in opened:
        if not POOLED:
            with one.cursor() as cursor:
                cursor.execute(FAST[one.vendor])
    Lifecycle.parties = Lines.parties = opened
    yield opened
    connections["default"] = first
    for one in opened[1:]:
        one.close()
    first.close()  # and with it the setting


@pytest.mark.slow(seconds=60)
@pytest.mark.parametrize("part", range(PARTS))  # by themselves, so that they may run beside each other
def test_the_protocol_holds_whatever_order_its_verbs_come_in(parties: list[Any], settings: Any, part: int) -> None:
    settings.JOBQUEUE = {"NOTIFY": False}
    machine = type(f"Lifecycle{part}", (Lifecycle,), {})
    chosen = seed(part)(machine) if "CI" in os.environ else machine
    run_state_machine_as_test(chosen, settings=profile(PROFILE, max_examples=EXAMPLES // PARTS))


@pytest.mark.slow(seconds=72)
def test_lines_limits_and_pauses_hold_whatever_order_the_verbs_come_in(parties: list[Any], settings: Any) -> None:
    settings.JOBQUEUE = {"NOTIFY": False}
    examples = EXAMPLES // 7  # its steps do more
    run_state_machine_as_test(Lines, settings=profile(PROFILE, max_examples=examples))


# CI uses the same examples each time. Other runs use new ones, and a failure prints how to repeat it. To make a failing example
# short takes minutes on a real database, so it is done only where it is asked for.
PROFILE = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    derandomize="CI" in os.environ,
    print_blob=True,
    phases=[Phase.generate, *([Phase.shrink] if "STATE_MACHINE_SHRINK" in os.environ else [])],
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
