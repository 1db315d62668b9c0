"""Pipelines with the backends for tests: without workers and waits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.pipelines import samples


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    samples.forget()
    yield
    samples.forget()


def run(task: Any, *args: Any) -> Any:
    return task.using(backend="immediate").enqueue(*args)


def test_phases_run_at_once_and_see_each_others_results() -> None:
    assert run(samples.publish, "a").return_value == "uploaded a"


def test_a_finished_phase_is_not_run_again_by_a_retry() -> None:
    samples.fails["process"] = 1
    result = run(samples.publish, "a")
    assert result.status == "SUCCESSFUL"
    assert dict(samples.ran) == {"download": 1, "process": 2, "upload": 1, "publish": 1}


def test_coroutines_run_as_phases() -> None:
    assert run(samples.mirror, 1).return_value == 20


def test_a_checkpoint_is_seen_by_the_next_attempt() -> None:
    samples.fails["half"] = 1
    assert run(samples.count_up, 10).return_value == 10
    assert samples.seen["began at"] == [0, 5]


def test_a_sleep_takes_no_time() -> None:
    assert run(samples.nap, 3600).return_value == "slept"


def test_a_parent_continues_at_once() -> None:
    assert run(samples.follow, [5, 6]).return_value == 2


@pytest.mark.parametrize("fails", [0, 1])
@pytest.mark.parametrize("name", ["dine", "adine"])
def test_each_phase_gets_arguments_of_its_own_in_each_attempt(name: str, fails: int) -> None:
    samples.fails["serve"] = fails
    assert run(getattr(samples, name), {"id": 7}, [1, 2]).return_value == ["['id'] ([1, 2],)", ["id"], [1, 2]]
