"""Results that a process keeps for a few seconds."""

import threading
from typing import Any

import pytest

from jobqueue.core import recent


def test_a_result_is_kept_for_a_while_and_then_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    now, made = [100.0], iter(range(9))
    monkeypatch.setattr(recent.time, "monotonic", lambda: now[0])
    assert [recent.kept("key", 10, lambda: next(made)) for _ in range(2)] == [0, 0]
    assert recent.kept("other", 10, lambda: next(made)) == 1
    now[0] += 10
    assert recent.kept("key", 10, lambda: next(made)) == 2


def test_what_a_call_raises_is_not_kept() -> None:
    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        recent.kept("key", 10, fail)
    assert recent.kept("key", 10, lambda: 1) == 1


def test_threads_that_ask_at_once_share_one_call() -> None:
    calls: list[int] = []
    entered, finish = threading.Event(), threading.Event()

    def slow() -> int:
        calls.append(1)
        entered.set()
        assert finish.wait(10)
        return 7

    results: list[Any] = []
    threads = [threading.Thread(target=lambda: results.append(recent.kept("key", 10, slow))) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert entered.wait(10)
    finish.set()
    for thread in threads:
        thread.join(10)
    assert (results, len(calls)) == ([7] * 4, 1)


def test_old_results_and_too_many_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(recent.time, "monotonic", lambda: now[0])
    for number in range(recent.MAX_KEPT + 5):
        recent.kept(number, 10, object)
    assert len(recent._results) <= recent.MAX_KEPT
    now[0] += 11
    recent.kept("new", 10, object)
    assert [*recent._results] == [*recent._locks] == ["new"]
