"""The connection between a worker and its parent process."""

from __future__ import annotations

import pytest

from jobqueue.worker.fleet import ipc
from jobqueue.worker.fleet.ipc import ProcessLink
from jobqueue.worker.process.memory import rss_mb
from jobqueue.worker.process.recycling import Recycling


def test_messages_of_one_side_reach_the_other_in_order() -> None:
    ours, socket = ipc.pair()
    theirs = ProcessLink(socket)
    assert ours.receive() == []
    assert theirs.send(ipc.SERVES, "an identity")
    assert theirs.send(ipc.PULSE)
    assert ours.receive() == [(ipc.SERVES, "an identity"), (ipc.PULSE, None)]
    theirs.close()
    assert ours.receive() == []
    assert ours.closed
    assert not ours.send(ipc.STOP), "no process receives it"
    ours.close()


def test_the_last_message_of_an_ended_process_is_received() -> None:
    ours, socket = ipc.pair()
    theirs = ProcessLink(socket)
    theirs.send(ipc.LEAVES, ipc.DONE)
    theirs.close()
    assert ours.receive() == [(ipc.LEAVES, ipc.DONE)]
    assert ours.closed
    ours.close()


def test_a_client_that_never_reads_delays_no_other() -> None:
    ours, socket = ipc.pair()
    said = [ours.send(ipc.DEAD, ["x" * 1000]) for _ in range(2000)]
    assert said[0]
    assert not said[-1]
    ours.close()
    socket.close()


@pytest.mark.parametrize("most", [1, 10, 1000])
def test_a_process_is_replaced_after_its_jobs_or_a_little_earlier(most: int) -> None:
    hurried: list[int] = []
    recycling = Recycling(lambda: hurried.append(1), max_jobs=most)
    first = next(done for done in range(1, most + 1) if recycling.reason(done))
    assert most * 0.9 <= first <= most
    recycling.check_job_count(first - 1)
    assert not hurried
    recycling.check_job_count(first)
    assert hurried


def test_memory_counts_once_a_process_has_done_something_and_is_no_longer_young(monkeypatch: pytest.MonkeyPatch) -> None:
    recycling = Recycling(lambda: None, max_rss_mb=1)
    assert rss_mb() > 1
    assert recycling.reason(5) == "", "it is young"
    monkeypatch.setattr("jobqueue.worker.process.recycling.MIN_AGE_SECONDS", 0.0)
    assert recycling.reason(0) == "", "it has done nothing"
    assert recycling.reason(5).endswith("MB of memory")
