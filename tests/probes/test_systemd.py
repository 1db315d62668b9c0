"""The messages to systemd over a real socket."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobqueue.worker.probes import systemd
from jobqueue.worker.probes.state import ProbeState

READY, ALIVE, STOPPING = b"READY=1", b"WATCHDOG=1", b"STOPPING=1"


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Provide the socket of a service manager, whose name is in the environment."""
    name = f"@jobqueue-test-{os.getpid()}" if request.param == "abstract" else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as found:
        found.bind(f"\0{name[1:]}" if name.startswith("@") else name)
        found.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        yield found


def received(manager: socket.socket) -> list[bytes]:
    messages = []
    try:
        while True:
            messages.append(manager.recv(4096))
    except BlockingIOError:
        return messages


def test_systemd_gets_the_start_the_end_and_signs_of_life_while_heartbeats_are_written(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "30000000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    states = [ProbeState(), ProbeState(begun=True), ProbeState(begun=True, unhealthy="hangs"), ProbeState(begun=True, ending=True)]
    state = iter(states)
    notifier = systemd.from_environment(lambda: next(state))
    assert notifier is not None
    assert [(notifier.turn(), received(manager)) for _ in states] == [
        (systemd.START_SECONDS, [ALIVE]),
        (systemd.CHECK_SECONDS, [READY, ALIVE]),
        (systemd.CHECK_SECONDS, []),
        (systemd.CHECK_SECONDS, [STOPPING, ALIVE]),
    ]
    assert not {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} & set(os.environ), "they are not for programs that tasks start"


def test_without_a_watchdog_or_with_that_of_another_process_no_sign_of_life_is_sent(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "30000000")
    monkeypatch.setenv("WATCHDOG_PID", "1")
    notifier = systemd.from_environment(lambda: ProbeState(begun=True))
    assert notifier is not None
    assert (notifier.turn(), received(manager)) == (systemd.CHECK_SECONDS, [READY])
    assert (notifier.turn(), received(manager)) == (systemd.CHECK_SECONDS, [])
    assert systemd.from_environment(ProbeState) is None, "without systemd"


def test_a_socket_that_is_gone_is_logged_once_and_the_thread_continues(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    notifier = systemd.SystemdNotifier(str(tmp_path / "nowhere"), 0.03, lambda: ProbeState(begun=True))
    notifier.start()
    try:
        while notifier.failures < 3:
            notifier.join(0.01)
        assert notifier.alive
    finally:
        notifier.stop()
    assert notifier.join(10)
    assert caplog.text.count("systemd cannot be notified") == 1
