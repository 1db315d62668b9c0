"""One attempt: the request, its signature, and the cost of bad receivers."""

from __future__ import annotations

import logging
import socket
import ssl
import time
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from jobqueue.webhooks import guard, sending
from jobqueue.webhooks.sending import AttemptResult, send
from tests.webhooks import receivers
from tests.webhooks.conftest import Listen
from tests.webhooks.receivers import SECRET, says

BODY = '{"type":"job.completed","data":{"text":"ä"}}'
OTHER = SECRET[:-4] + "AAAA"


def sent(url: str, *, secrets: tuple[str, ...] = (SECRET,), seconds: float = 1, allowed: tuple[str, ...] = ("127.0.0.1",)) -> AttemptResult:
    return whole(url, secrets=secrets, seconds=seconds, allowed=allowed)._replace(excerpt="", milliseconds=None)


def whole(
    url: str, *, secrets: tuple[str, ...] = (SECRET,), seconds: float = 1, allowed: tuple[str, ...] = ("127.0.0.1",)
) -> AttemptResult:
    """Return the result with its duration and its excerpt, which the other tests do not compare."""
    return send(url, "id-1", BODY, secrets=secrets, allowed=allowed, seconds=seconds)


@pytest.mark.parametrize("status", [200, 500])
def test_the_beginning_of_the_response_and_the_duration_are_kept_with_masked_secrets(listen: Listen, status: int) -> None:
    receiver = listen(says(status, body=b'{"ok": true, "password": "hunter2", "nul": "\0", "bytes": "\xff"}' + b"x" * 9000))
    result = whole(receiver.url)
    assert result.excerpt.startswith('{"ok": true')
    assert "hunter2" not in result.excerpt
    assert "\0" not in result.excerpt
    assert len(result.excerpt.encode()) <= sending.MAX_EXCERPT_BYTES + 100  # with the mark of the cut
    assert result.milliseconds is not None
    assert 0 <= result.milliseconds < 1000


def test_an_attempt_without_a_response_has_a_duration_and_no_excerpt(listen: Listen) -> None:
    result = whole("http://127.0.0.1:9/hook")
    assert (result.excerpt, result.status) == ("", None)
    assert result.milliseconds is not None


def test_a_message_arrives_and_its_signature_holds(listen: Listen) -> None:
    receiver = listen(says(204))
    assert sent(receiver.url) == AttemptResult(delivered=True, status=204)
    (request,) = receiver.requests
    assert request.line == "POST /hook HTTP/1.1"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["webhook-id"] == "id-1"
    assert Webhook(SECRET).verify(request.body, request.headers)["type"] == "job.completed"
    with pytest.raises(WebhookVerificationError):
        Webhook(OTHER).verify(request.body, request.headers)


def test_while_a_secret_is_replaced_both_hold(listen: Listen) -> None:
    receiver = listen(says(200))
    sent(receiver.url, secrets=(OTHER, SECRET))
    (request,) = receiver.requests
    for secret in (SECRET, OTHER):
        Webhook(secret).verify(request.body, request.headers)


def test_without_a_secret_it_is_not_signed(listen: Listen) -> None:
    receiver = listen(says(200))
    assert sent(receiver.url, secrets=()).delivered
    assert "webhook-signature" not in receiver.requests[0].headers


@pytest.mark.parametrize(("status", "final"), [(400, False), (404, False), (410, True), (429, False), (500, False), (503, False)])
def test_an_error_is_reported_with_its_status_and_nothing_of_what_the_receiver_said(listen: Listen, status: int, final: bool) -> None:
    receiver = listen(says(status, more="retry-after: 77\r\n", body=b"internal secret"))
    answer = sent(receiver.url)
    assert answer == AttemptResult(final=final, status=status, error=f"The receiver returned status {status}.", retry_after=77)


def test_gone_is_final_whatever_the_receiver_says_of_a_next_time(listen: Listen) -> None:
    receiver = listen(says(410, more="retry-after: Fri, 99999999999999999999 Dec 2026 00:00:00 GMT\r\n"))
    assert sent(receiver.url) == AttemptResult(final=True, status=410, error="The receiver returned status 410.")


def test_no_log_of_a_library_has_the_url(listen: Listen, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    receiver = listen(says(204))
    assert sent(f"{receiver.url}?token=SECRET").delivered
    assert receiver.requests[0].line == "POST /hook?token=SECRET HTTP/1.1"
    assert "SECRET" not in caplog.text


def test_a_redirect_is_a_failure_and_is_not_followed(listen: Listen) -> None:
    inside = listen(says(200))
    receiver = listen(says(301, more=f"location: {inside.url}\r\n"))
    assert sent(receiver.url) == AttemptResult(status=301, error="The receiver returned status 301; redirects are not followed.")
    assert inside.connections == 0


@pytest.mark.long
@pytest.mark.parametrize("answer", [receivers.silent, receivers.one_byte_a_second])
def test_the_time_limit_is_that_of_the_whole(listen: Listen, answer: Any) -> None:
    receiver = listen(answer)
    began = time.monotonic()
    assert sent(receiver.url, seconds=1.5) == AttemptResult(error="No response within 1.5 s.", late=True)
    assert 1.4 < time.monotonic() - began < 2.5


def test_a_huge_answer_is_not_read(listen: Listen) -> None:
    began = time.monotonic()
    assert sent(listen(receivers.fifty_megabytes).url, seconds=5).status == 500
    assert time.monotonic() - began < 2


def test_a_receiver_that_closes_is_a_failure(listen: Listen) -> None:
    answer = sent(listen(receivers.closes).url)
    assert (answer.delivered, answer.final, answer.status) == (False, False, None)
    assert answer.error == "The receiver closed the connection without a response."


@pytest.mark.long
def test_an_untrusted_certificate_is_a_failure(listen: Listen, tmp_path: Path) -> None:
    receiver = listen(says(200), tls=receivers.self_signed(tmp_path))
    answer = sent(receiver.url)
    assert not answer.delivered
    assert "CERTIFICATE_VERIFY_FAILED" in answer.error
    assert receiver.requests == []


def test_a_port_without_a_server_is_a_failure() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    answer = sent(f"http://127.0.0.1:{port}/")
    assert not answer.final
    assert "refused" in answer.error.lower()


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1/", "http://[::1]/", "http://0x7f000001/", "http://localhost:8000/", "http://a@example.com/", "ftp://example.com/"],
)
def test_what_is_refused_is_final(url: str) -> None:
    answer = sent(url, allowed=())
    assert answer.final
    assert answer.error.startswith("Refused: ")


def test_a_name_that_changes_between_check_and_use_changes_nothing(listen: Listen, monkeypatch: pytest.MonkeyPatch) -> None:
    good, inside = listen(says(200)), listen(says(200))
    asked: list[str] = []
    real = socket.getaddrinfo

    def resolve(host: Any, port: Any, *args: Any, **options: Any) -> Any:
        if host != "rebind.example":
            return real(host, port, *args, **options)
        asked.append(host)
        # First what may be spoken to, then what may not.
        return real("127.0.0.2" if len(asked) == 1 else "127.0.0.1", port, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    assert not sent(f"http://rebind.example:{inside.port}/", allowed=("127.0.0.2",)).delivered
    assert (len(asked), inside.connections, good.connections) == (1, 0, 0)


def test_the_receivers_name_goes_along_though_the_address_was_judged(listen: Listen, monkeypatch: pytest.MonkeyPatch) -> None:
    receiver = listen(says(200))
    monkeypatch.setattr(guard, "addresses", lambda host, port, allowed: ["127.0.0.1"])
    assert sent(f"http://hooks.example:{receiver.port}/x?y=1").delivered
    assert receiver.requests[0].headers["host"] == f"hooks.example:{receiver.port}"
    assert receiver.requests[0].line == "POST /x?y=1 HTTP/1.1"


def test_a_dead_address_leaves_time_for_a_living_one(listen: Listen, monkeypatch: pytest.MonkeyPatch) -> None:
    receiver = listen(says(200))
    monkeypatch.setattr(guard, "addresses", lambda host, port, allowed: ["127.0.0.9", "127.0.0.1"])
    assert sent(f"http://hooks.example:{receiver.port}/").delivered


def test_proxies_of_the_environment_are_not_used(listen: Listen, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy, receiver = listen(says(200)), listen(says(200))
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
    assert sent(receiver.url).delivered
    assert proxy.connections == 0


@pytest.mark.long
def test_a_receiver_that_does_not_even_read_is_left_after_the_time_for_the_whole() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        began = time.monotonic()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        answer = send(url, "id-1", "x" * 30_000_000, secrets=(), allowed=("127.0.0.1",), seconds=1)
        assert time.monotonic() - began < 2
    assert answer.late


@pytest.mark.long
def test_a_handshake_that_never_ends_is_left_after_the_time_for_the_whole() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sent(f"https://127.0.0.1:{listener.getsockname()[1]}/", seconds=0.1)  # what is made once takes its time
        began = time.monotonic()
        assert sent(f"https://127.0.0.1:{listener.getsockname()[1]}/", seconds=1).late
        assert time.monotonic() - began < 2


@pytest.mark.long
def test_a_body_that_drips_counts_for_nothing_once_the_status_is_known(listen: Listen) -> None:
    began = time.monotonic()
    assert sent(listen(receivers.drips_its_body).url, seconds=10).delivered
    assert time.monotonic() - began < 3


def test_endless_headers_are_no_way_to_fill_the_memory(listen: Listen) -> None:
    answer = sent(listen(receivers.endless_headers).url, seconds=5)
    assert (answer.delivered, answer.late) == (False, False)
    assert answer.error == "The receiver did not send a valid HTTP response."


@pytest.mark.long
def test_a_certificate_is_judged_by_the_name_though_the_connection_goes_to_an_address(
    listen: Listen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver = listen(says(200), tls=receivers.self_signed(tmp_path, "hooks.example"))
    trusting = ssl.create_default_context(cafile=str(tmp_path / "certificate.pem"))
    monkeypatch.setattr(sending, "_tls", lambda: trusting)
    monkeypatch.setattr(guard, "addresses", lambda host, port, allowed: ["127.0.0.1"])
    assert sent(f"https://hooks.example:{receiver.port}/").delivered
    assert "Hostname mismatch" in sent(f"https://other.example:{receiver.port}/").error
    assert [request.headers["host"] for request in receiver.requests] == [f"hooks.example:{receiver.port}"]
