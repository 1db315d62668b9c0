"""The base class of all background threads: start and stop."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import pytest

from jobqueue.core.service import Service

PATIENCE_SECONDS = 20.0


class Turns(Service):
    """Run the given function at each turn, and count."""

    name = "turns"

    def __init__(self, what: Callable[[Turns], float | None] | None = None, on_error: Any = None) -> None:
        super().__init__(on_error)
        self.what = what
        self.turns = 0
        self.done = threading.Semaphore(0)  # released after each turn
        self.steps: list[str] = []
        self.threads: set[int] = set()
        self.inside = 0
        self.overlapped = False

    def set_up(self) -> None:
        self.steps.append("set up")
        self.threads.add(threading.get_ident())

    def turn(self) -> float | None:
        self.inside += 1
        self.overlapped |= self.inside > 1
        self.turns += 1
        try:
            return None if self.what is None else self.what(self)
        finally:
            self.inside -= 1
            self.done.release()

    def tear_down(self) -> None:
        self.steps.append("tear down")
        self.threads.add(threading.get_ident())

    def end(self) -> None:
        self.stop()
        assert self.join(PATIENCE_SECONDS)
        assert not self.alive


def after(service: Turns, turns: int) -> None:
    """Wait until this number of further turns are done."""
    for _ in range(turns):
        assert service.done.acquire(timeout=PATIENCE_SECONDS)


def test_it_takes_turns_between_start_and_stop_in_a_thread_of_its_own() -> None:
    service = Turns(lambda _: 0.0)
    assert not service.alive
    service.start()
    after(service, 3)
    assert service.alive
    service.end()
    turns = service.turns
    assert service.stopping
    assert service.steps == ["set up", "tear down"]
    assert len(service.threads) == 1
    assert threading.get_ident() not in service.threads
    assert not service.done.acquire(timeout=0.05) or service.turns == turns


def test_a_second_start_makes_no_second_thread() -> None:
    service = Turns()
    service.start()
    first = service._thread
    service.start()
    assert service._thread is first
    service.end()


def test_a_service_that_never_started_has_ended() -> None:
    service = Turns()
    service.stop()
    assert service.join(0)
    assert not service.alive


def test_a_service_that_was_stopped_before_its_start_takes_no_turn() -> None:
    service = Turns()
    service.stop()
    service.start()
    assert service.join(PATIENCE_SECONDS)
    assert (service.turns, service.steps) == (0, ["set up", "tear down"])


def test_join_returns_whether_a_turn_still_runs() -> None:
    entered, release = threading.Event(), threading.Event()

    def long(_: Turns) -> None:
        entered.set()
        release.wait(PATIENCE_SECONDS)

    service = Turns(long)
    service.start()
    assert entered.wait(PATIENCE_SECONDS)
    assert service.busy_seconds > 0
    service.stop()
    assert not service.join(0.01)
    release.set()
    assert service.join(PATIENCE_SECONDS)
    assert service.busy_seconds == 0


def test_a_wake_ends_the_rest() -> None:
    service = Turns()  # rests until woken
    service.start()
    after(service, 1)
    service.wake()
    after(service, 1)
    service.end()
    assert service.turns == 2


def test_a_wake_during_a_turn_is_remembered() -> None:
    def wish_for_more(service: Turns) -> None:
        if service.turns == 1:
            service.wake()

    service = Turns(wish_for_more)
    service.start()
    after(service, 2)
    service.end()
    assert service.turns == 2, "one wish is one turn more"


def test_wait_is_ended_by_wake_and_returns_whether_to_stop() -> None:
    service = Turns()
    service.wake()
    assert service.wait(PATIENCE_SECONDS) is False
    service.stop()
    assert service.wait(PATIENCE_SECONDS) is True


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt, GeneratorExit])
def test_a_turn_that_raises_is_reported_and_tried_again(error: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Service, "backoff_seconds", lambda _: 0.0)
    told: list[tuple[str, int]] = []

    def fail_twice(service: Turns) -> None:
        if service.turns <= 2:
            raise error("no")

    service = Turns(fail_twice, lambda one, raised, failures: told.append((type(raised).__name__, failures)))
    service.start()
    after(service, 3)
    service.end()
    assert told == [(error.__name__, 1), (error.__name__, 2)]
    assert service.failures == 0, "a good turn counts anew"


def test_a_reporter_that_raises_ends_no_service(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(Service, "backoff_seconds", lambda _: 0.0)

    def fail_once(service: Turns) -> None:
        if service.turns == 1:
            raise ValueError("no")

    def report(service: Service, error: BaseException, failures: int) -> None:
        raise RuntimeError("the log is full")

    service = Turns(fail_once, report)
    service.start()
    after(service, 2)
    service.end()
    assert "the log is full" in caplog.text


def test_failing_turns_come_at_growing_distances_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "uniform", lambda low, high: high)
    service = Turns()
    pauses = []
    for failures in (1, 2, 3, 4, 5, 6, 7, 100, 10**6):
        service.failures = failures
        pauses.append(service.backoff_seconds())
    assert pauses == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0, 5.0]


def test_the_backoff_is_jittered_so_that_a_fleet_does_not_return_in_step() -> None:
    service = Turns()
    service.failures = 3
    pauses = {service.backoff_seconds() for _ in range(100)}
    assert len(pauses) > 50
    assert 0.4 <= min(pauses) <= max(pauses) <= 0.8


def test_a_failing_service_waits_before_it_retries_and_still_stops_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Service, "backoff_seconds", lambda _: 3600.0)

    def fail(_: Turns) -> None:
        raise ValueError("no")

    service = Turns(fail)
    service.start()
    after(service, 1)
    assert not service.done.acquire(timeout=0.1)
    service.end()
    assert service.turns == 1


def test_a_failed_setup_is_still_torn_down() -> None:
    class Broken(Turns):
        def set_up(self) -> None:
            raise ValueError("no")

    told: list[BaseException] = []
    service = Broken(on_error=lambda one, raised, failures: told.append(raised))
    service.start()
    service.end()
    assert isinstance(told[0], ValueError)
    assert service.steps == ["tear down"]


def test_no_wish_is_lost_however_many_wish_at_once() -> None:
    wished = seen = 0
    lock = threading.Lock()

    def look(_: Turns) -> None:
        nonlocal seen
        with lock:
            seen = wished

    def wish() -> None:
        nonlocal wished
        for _ in range(2000):
            with lock:
                wished += 1
            service.wake()

    service = Turns(look)
    service.start()
    threads = [threading.Thread(target=wish) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    for _ in range(service.turns + 2):  # the last wish is followed by a turn that sees it
        with lock:
            if seen == wished:
                break
        after(service, 1)
    service.end()
    assert seen == wished == 8000
    assert not service.overlapped


def test_starts_stops_wakes_and_joins_in_any_order_end_cleanly() -> None:
    chance = random.Random(7)
    for _ in range(60):
        services = [Turns(lambda _: chance.choice([0.0, 0.001, None])) for _ in range(3)]

        def fiddle(seed: int, services: list[Turns] = services) -> None:
            mine = random.Random(seed)
            for _ in range(20):
                service = mine.choice(services)
                mine.choice([service.start, service.wake, service.wake, service.stop, lambda one=service: one.join(0.001)])()

        services[0].start()
        threads = [threading.Thread(target=fiddle, args=(chance.random(),)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
        for service in services:
            service.end()
            assert not service.overlapped
            assert service.steps in ([], ["set up", "tear down"])
