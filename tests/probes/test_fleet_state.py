"""The state of a fleet, from the states that its workers have sent."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from jobqueue.worker.fleet.child import Worker
from jobqueue.worker.fleet.ipc import PULSE
from jobqueue.worker.fleet.state import MAX_NAMED, fleet_figures, fleet_state
from jobqueue.worker.probes.state import ProbeState

FINE = ProbeState(begun=True, idle="", figures={"slots": 2})
DRAINED = ProbeState(begun=True, idle="The worker is drained.")


def worker(number: int, state: ProbeState | None = FINE, *, silent: float = 0.0, **more: Any) -> Worker:
    values = {"process": object(), "served_at": 1.0, "last_message_at": time.monotonic() - silent, "state": state}
    return Worker(number, **{**values, **more})


def fleet(*workers: Worker, stops: int = 0) -> Any:
    return SimpleNamespace(workers=workers, stops=stops, failed=False)


def test_a_fleet_is_ready_as_soon_as_one_worker_is_and_alive_as_long_as_one_is() -> None:
    assert fleet_state(fleet(worker(1), worker(2, DRAINED)), 4)[:4] == (True, False, "", "")
    assert fleet_state(fleet(worker(1, silent=60), worker(2)), 4)[:4] == (True, False, "", "")
    assert fleet_state(fleet(worker(1, DRAINED), worker(2, silent=60)), 4).unhealthy == ""
    found = fleet_state(fleet(worker(1, silent=60), worker(2, ProbeState(begun=True, unhealthy="hangs", idle="hangs"))), 4)
    assert found.unhealthy == found.idle == "Worker process 1: It has not responded for 60.0 s.\nWorker process 2: hangs"


def test_places_that_start_or_wait_for_a_start_are_left_to_the_parent_process() -> None:
    found = fleet_state(fleet(worker(1, served_at=None, state=None), worker(2, process=None)), 4)
    assert found == ProbeState(idle="Worker process 1: It is starting.\nWorker process 2: It has ended.")
    assert fleet_figures(fleet(worker(1), worker(2, process=None), worker(3, state=None))) == {"1": {"slots": 2}}


def test_the_end_of_a_fleet_and_a_large_fleet() -> None:
    assert fleet_state(fleet(worker(1), stops=1), 4)[:4] == (True, True, "", "The workers are ending.")
    text = fleet_state(fleet(*(worker(number, silent=60) for number in range(MAX_NAMED + 5))), 4).unhealthy
    assert text.count("\n") == MAX_NAMED
    assert text.endswith("\nand 5 more")


@pytest.mark.parametrize("value", [None, 7, [], [True], [*FINE, "of a later version"]])
def test_a_state_in_another_form_is_ignored(value: Any) -> None:
    place = worker(1, state=None)
    place.record_message(PULSE, value)
    assert place.state is None
    place.record_message(PULSE, [*FINE])
    assert place.state == FINE
