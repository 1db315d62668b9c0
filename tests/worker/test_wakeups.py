"""The signals between the parts of a worker."""

from __future__ import annotations

import pytest

from jobqueue.worker.process.supervisor import Supervisor
from jobqueue.worker.wakeups import Signal, Wakeups


def test_a_signal_reaches_its_receivers_with_its_values() -> None:
    received: list[object] = []
    wakeups = Wakeups()
    wakeups.set(Signal.WORK, "acme")
    wakeups.subscribe(Signal.WORK, received.append, lambda tenant: received.append((tenant, "second")))
    wakeups.subscribe(Signal.STATE, lambda: received.append("state"))
    wakeups.set(Signal.WORK, "acme")
    wakeups.setter(Signal.STATE)()
    assert received == ["acme", ("acme", "second"), "state"]


@pytest.mark.django_db
def test_in_a_worker_each_signal_has_a_receiver() -> None:
    supervisor = Supervisor()
    without = [signal for signal in Signal if not supervisor._wakeups._receivers[signal]]
    assert without == [Signal.RECOVERED], "only a parent process receives it"
