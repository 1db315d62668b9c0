"""One message over HTTP: signed, bounded in time and size, to the address that was judged and to no other."""

import base64
import json
import socket
import ssl
import time
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook

from jobqueue.webhooks import sending
from tests.webhooks import receiver as made
from tests.webhooks.receiver import answer, receiving

OLD, NEW = (f"whsec_{base64.b64encode(bytes([one]) * 24).decode()}" for one in (1, 2))
LOOPBACK = ("127.0.0.0/8",)
BODY = json.dumps({"type": "job.completed", "data": {"message": "Größe"}})


def send(url: str, *, body: str = BODY, secrets: tuple[str, ...] = (), allowed: tuple[str, ...] = LOOPBACK, seconds: float = 5.0) -> Any:
    return sending.send(url, "msg_1", body, secrets=secrets, allowed=allowed, seconds=seconds)


def test_a_message_arrives_as_json_with_its_id_and_a_signature_of_each_secret() -> None:
    with receiving(answer(204, body=b"")) as receiver:
        assert send(receiver.url, secrets=(NEW, OLD)) == sending.Answer(delivered=True, status=204)
    [got] = receiver.received
    assert got.body == BODY.encode()
    assert got.headers["content-type"] == "application/json"
    assert got.headers["webhook-id"] == "msg_1"
    assert got.headers["user-agent"].startswith("jobqueue/")
    assert abs(int(got.headers["webhook-timestamp"]) - time.time()) < 5
    for secret in (OLD, NEW):
        assert Webhook(secret).verify(got.body, got.headers) == json.loads(BODY)


def test_without_a_secret_a_message_is_sent_unsigned() -> None:
    with receiving(answer()) as receiver:
        assert send(receiver.url).delivered
    assert "webhook-signature" not in receiver.received[0].headers


@pytest.mark.parametrize(("status", "final"), [(301, False), (400, False), (404, False), (410, True), (429, False), (500, False)])
def test_an_answer_that_is_no_success_is_a_failure_and_410_the_last(status: int, final: bool) -> None:
    with receiving(answer(status)) as receiver:
        got = send(receiver.url)
    assert (got.delivered, got.final, got.status, got.late) == (False, final, status, False)
    assert str(status) in got.error


def test_retry_after_is_read() -> None:
    with receiving(answer(429, "Retry-After: 77")) as receiver:
        assert send(receiver.url).retry_after == 77


def test_a_redirect_is_not_followed() -> None:
    with receiving(answer()) as inside, receiving(answer(302, f"Location: {inside.url}")) as receiver:
        got = send(receiver.url)
    assert got.error == "The receiver answered 302; redirects are not followed."
    assert inside.connections == 0


@pytest.mark.parametrize("behave", [made.stay_silent, made.drip])
def test_a_receiver_that_never_finishes_is_left_after_the_time_for_the_whole(behave: made.Behave) -> None:
    with receiving(behave) as receiver:
        began = time.monotonic()
        got = send(receiver.url, seconds=1.5)
        assert 1.4 < time.monotonic() - began < 2.5
    assert (got.delivered, got.late, got.error) == (False, True, "No answer within 1.5 s.")


def test_a_receiver_that_does_not_even_read_is_left_after_the_time_for_the_whole() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        began = time.monotonic()
        got = send(f"http://127.0.0.1:{listener.getsockname()[1]}/", body="x" * 30_000_000, seconds=1)
        assert time.monotonic() - began < 2
    assert got.late


def test_a_body_that_drips_counts_for_nothing_once_the_status_is_known() -> None:
    with receiving(made.drip_the_body) as receiver:
        began = time.monotonic()
        assert send(receiver.url, seconds=10).delivered
        assert time.monotonic() - began < 3


@pytest.mark.parametrize("status", [200, 500])
def test_of_a_huge_body_almost_nothing_is_read_and_nothing_is_kept(status: int) -> None:
    with receiving(made.flood(status)) as receiver:
        began = time.monotonic()
        got = send(receiver.url)
        assert time.monotonic() - began < 2
    assert (got.status, got.delivered) == (status, status == 200)
    assert "...." not in got.error


def test_endless_headers_are_no_way_to_fill_the_memory() -> None:
    def behave(receiver: made.Receiver, connection: socket.socket, request: made.Received) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n")
        while not receiver.over.is_set():
            connection.sendall(b"X-More: " + b"." * 1000 + b"\r\n")

    with receiving(behave) as receiver:
        got = send(receiver.url)
    assert not got.delivered
    assert "RemoteProtocolError" in got.error


def test_a_receiver_that_hangs_up_or_is_not_there_is_a_failure() -> None:
    with receiving(made.close_at_once) as receiver:
        assert "RemoteProtocolError" in send(receiver.url).error
    gone = send(receiver.url)
    assert (gone.delivered, gone.final) == (False, False)
    assert "ConnectError" in gone.error


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:{port}/", "http://localhost:{port}/", "http://0x7f000001:{port}/", "http://0.0.0.0:{port}/"]
)
def test_a_receiver_inside_is_refused_at_once_and_never_touched(url: str) -> None:
    with receiving(answer()) as receiver:
        got = send(url.format(port=receiver.port), allowed=())
    assert (got.delivered, got.final) == (False, True)
    assert got.error.startswith("Refused: ")
    assert receiver.connections == 0


@pytest.mark.parametrize("url", ["ftp://example.com/", "http://a:hunter2@example.com/", "nothing", "http://[::1"])
def test_what_is_no_url_is_refused_at_once(url: str) -> None:
    got = send(url)
    assert got.final
    assert got.error.startswith("Refused: it must")
    assert "hunter2" not in got.error


def test_the_connection_is_made_to_the_address_that_was_judged_though_the_name_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    real = socket.getaddrinfo

    def change(host: str, *args: Any, **kwargs: Any) -> Any:
        if host != "hooks.example":
            return real(host, *args, **kwargs)
        asked.append(host)
        return real("127.0.0.2" if len(asked) == 1 else "127.0.0.1", *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", change)
    with receiving(answer(), host="127.0.0.2") as judged, receiving(answer(), host="127.0.0.1", port=judged.port) as other:
        assert send(f"http://hooks.example:{judged.port}/", allowed=("127.0.0.2",)).delivered
        assert (len(judged.received), other.connections, len(asked)) == (1, 0, 1)
        assert judged.received[0].headers["host"] == f"hooks.example:{judged.port}"
        assert send(f"http://hooks.example:{judged.port}/", allowed=("127.0.0.2",)).error.startswith("Refused: hooks.example has")


def test_a_proxy_of_the_environment_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiving(answer()) as proxy, receiving(answer()) as receiver:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        assert send(receiver.url).delivered
    assert (proxy.connections, len(receiver.received)) == (0, 1)


def test_another_address_of_the_name_is_tried_where_one_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.getaddrinfo

    def two(host: str, port: int, *args: Any, **kwargs: Any) -> Any:
        if host != "hooks.example":
            return real(host, port, *args, **kwargs)
        return [*real("127.0.0.3", port, *args, **kwargs), *real("127.0.0.1", port, *args, **kwargs)]

    monkeypatch.setattr(socket, "getaddrinfo", two)
    with receiving(answer()) as receiver:
        assert send(f"http://hooks.example:{receiver.port}/").delivered


# TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made.certificate_for("hooks.example", tmp_path_factory.mktemp("tls"))


def named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.getaddrinfo
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda host, *args, **kwargs: real("127.0.0.1" if host.endswith(".example") else host, *args, **kwargs)
    )


def test_a_certificate_that_nobody_trusts_is_a_failure(certificate: Path) -> None:
    with receiving(answer(), certificate=certificate) as receiver:
        got = send(receiver.url)
    assert (got.delivered, got.final, receiver.received) == (False, False, [])
    assert "certificate verify failed" in got.error


def test_a_certificate_is_judged_by_the_name_though_the_connection_goes_to_an_address(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named(monkeypatch)
    trusting = ssl.create_default_context(cafile=str(certificate))
    monkeypatch.setattr(sending, "_tls", lambda: trusting)
    with receiving(answer(), certificate=certificate) as receiver:
        assert send(f"https://hooks.example:{receiver.port}/").delivered
        assert "Hostname mismatch" in send(f"https://other.example:{receiver.port}/").error
    assert receiver.received[0].headers["host"] == f"hooks.example:{receiver.port}"


def test_a_handshake_that_never_ends_is_left_after_the_time_for_the_whole(certificate: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        began = time.monotonic()
        got = send(f"https://127.0.0.1:{listener.getsockname()[1]}/", seconds=1)
        assert time.monotonic() - began < 2
    assert got.late
