"""The HTTP server of the probes: what it answers, and that no client blocks it."""

from __future__ import annotations

import contextlib
import http.client
import logging
import socket
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from jobqueue.worker.probes import server as probes
from jobqueue.worker.probes.server import MAX_CONNECTIONS, ProbeServer, listen, probe_pages, url_of
from jobqueue.worker.probes.state import COUNTERS, ENDED, GAUGES, PREFIX, ProbeState

FIGURES = {**dict.fromkeys((*GAUGES, *COUNTERS), 3.0), f"{ENDED}:SUCCESS": 7, f"{ENDED}:lost": 1}
State = Callable[[], ProbeState]


def raises() -> ProbeState:
    raise ValueError("a bug")


@contextlib.contextmanager
def serving(state: State = lambda: ProbeState(begun=True, idle="")) -> Iterator[int]:
    """Serve the probes of a state; return the port."""
    server = ProbeServer(listener := listen("127.0.0.1:0"), probe_pages(state, lambda: {"1": FIGURES}))
    server.start()
    try:
        yield int(listener.getsockname()[1])
    finally:
        server.stop()
        assert not server._thread.is_alive()


def ask(port: int, path: str, method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def test_the_reasons_of_a_state_make_its_pages_red() -> None:
    state = [ProbeState(begun=True, idle="")]
    with serving(lambda: state[0]) as port:
        assert [ask(port, path) for path in ("/livez", "/readyz", "/livez?verbose=1")] == [(200, "ok\n")] * 3
        state[0] = ProbeState(begun=True, unhealthy="No heartbeat was written.", idle="The worker is drained.")
        assert ask(port, "/livez") == (503, "No heartbeat was written.\n")
        assert ask(port, "/readyz") == (503, "The worker is drained.\n")
        assert ask(port, "/readyz", "HEAD") == (503, "")


def test_only_get_and_head_of_known_pages_are_answered_and_nothing_is_reflected(caplog: pytest.LogCaptureFixture) -> None:
    with serving(raises) as port:
        for path in ("/", "/nowhere-7", "/livez/", "//livez", "http://127.0.0.1/livez"):
            status, text = ask(port, path)
            assert (status, "nowhere" in text) == (404, False), path
        assert ask(port, "/livez", "POST")[0] == 405
        assert ask(port, "/livez")[0] == 500
        assert ask(port, "/livez") == (500, "The probe failed; the log of the worker says why.\n")
        for line in (b"\r\n\r\n", b"GET /livez\r\n\r\n", b"GET /livez SPDY/3\r\n\r\n", b"\xff\xfe\x00\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
                client.sendall(line)
                assert client.recv(100).startswith(b"HTTP/1.1 400 "), line
    assert "A probe failed." in caplog.text


@pytest.mark.long
def test_clients_that_send_or_read_slowly_block_no_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "EXCHANGE_SECONDS", 0.5)
    with serving() as port, contextlib.ExitStack() as stack:
        slow = [stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10)) for _ in range(2 * MAX_CONNECTIONS)]
        for client in slow:
            with contextlib.suppress(OSError):  # it was the oldest of too many
                client.send(b"GET /livez HT")
        began = time.monotonic()
        assert ask(port, "/livez") == (200, "ok\n")
        assert time.monotonic() - began < 5
        with contextlib.suppress(OSError):  # a head without an end
            slow[-1].sendall(b"x" * 1_000_000)
        assert ask(port, "/livez") == (200, "ok\n")
        with contextlib.suppress(OSError):
            assert slow[-2].recv(100) == b"", "its time is over"


def test_metrics_are_those_of_each_process_in_the_form_of_prometheus() -> None:
    with serving() as port:
        status, text = ask(port, "/metrics")
    assert status == 200
    samples = {(one.name, *one.labels.values()): one.value for family in text_string_to_metric_families(text) for one in family.samples}
    assert samples[f"{PREFIX}_slots", "1"] == 3
    assert samples[f"{PREFIX}_claimed_jobs_total", "1"] == 3
    assert samples[f"{PREFIX}_{ENDED}_total", "1", "SUCCESS"] == 7
    assert {name for name, *_ in samples} == {
        *(f"{PREFIX}_{name}" for name in GAUGES),
        *(f"{PREFIX}_{name}_total" for name in (*COUNTERS, ENDED)),
    }


def test_without_the_extra_metrics_are_404_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with serving() as port:
        status, text = ask(port, "/metrics")
    assert status == 404
    assert "pip install 'jobqueue[prometheus]'" in text


def test_a_server_that_fails_says_so_and_ends_only_its_thread(caplog: pytest.LogCaptureFixture) -> None:
    listener = listen("127.0.0.1:0")
    server = ProbeServer(listener, {})
    listener.close()
    with caplog.at_level(logging.ERROR, "jobqueue"):
        server.start()
        server._thread.join(10)
    assert "The probe server has ended, and the worker continues without it." in caplog.text
    server.stop()


@pytest.mark.parametrize("address", ["", "8080", "localhost", ":8080", "localhost:", "localhost:70000", "localhost:-1", "localhost:x"])
def test_an_address_needs_a_host_and_a_port(address: str) -> None:
    with pytest.raises(ValueError, match=r"an address and a port from 0 to 65535, such as 0\.0\.0\.0:8080"):
        listen(address)


def test_the_url_has_the_port_that_was_free() -> None:
    for address, start in (("127.0.0.1:0", "http://127.0.0.1:"), ("[::1]:0", "http://[::1]:")):
        try:
            listener: Any = listen(address)
        except OSError:  # no IPv6 here
            assert "::1" in address
            continue
        with listener:
            assert url_of(listener).startswith(start)
            assert not url_of(listener).endswith(":0")
