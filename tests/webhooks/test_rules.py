"""What is a URL, a secret, a receiver, and when a message is tried again."""

import base64
from datetime import UTC, datetime

import pytest

from jobqueue import event_names
from jobqueue import webhook_rules as rules

SECRET = "whsec_" + base64.b64encode(b"k" * 24).decode()
DELAYS = rules.DELAYS


@pytest.mark.parametrize(
    "url", ["https://example.com", "http://example.com:8080/a?b=c#d", "https://[2606:4700::1111]/", "HTTPS://Example.com/x"]
)
def test_a_url_of_a_receiver_is_accepted(url: str) -> None:
    assert rules.url_problem(url) == ""


@pytest.mark.parametrize(
    "url",
    ["", None, 7, "example.com", "ftp://example.com", "javascript:alert(1)", "file:///etc/passwd", "http://", "http://a@example.com/",
     "http://a:b@example.com/", "http://exa mple.com/", "http://example.com/\n", "http://example.com:0/", "http://example.com:99999/",
     "http://[::1", "http://example.com\\@127.0.0.1/", "https://example.com/" + "a" * 2000],
)  # fmt: skip
def test_what_is_no_url_of_a_receiver_is_refused_with_the_reason(url: object) -> None:
    assert rules.url_problem(url).startswith(("it must ", "its port must "))


@pytest.mark.parametrize(
    ("url", "origin", "host"),
    [
        ("HTTPS://Example.com:8443/Hook?Token=x", "https://example.com:8443", "example.com:8443"),
        ("http://example.com", "http://example.com", "example.com"),
        ("https://user:pass@example.com/", "https://user:pass@example.com", "example.com"),
        ("http://[bad/Path", "http://[bad/path", "[bad/path"),
    ],
)
def test_a_receiver_is_named_by_scheme_host_and_port_and_people_see_no_more_than_the_host(url: str, origin: str, host: str) -> None:
    assert (rules.origin(url), rules.host(url)) == (origin, host)


def test_secrets_are_one_or_a_list_or_by_queue() -> None:
    other = SECRET.replace("a", "b")
    for value in [SECRET, [SECRET], (SECRET, other), {"default": SECRET, "*": [SECRET, other]}]:
        assert rules.is_secrets(value)
    for value in ["", "whsec_", "whsec_not base64", "whsec_" + base64.b64encode(b"short").decode(), [], [7], {"": SECRET}, {7: SECRET}, 7]:
        assert not rules.is_secrets(value)
    by_queue = {"mail": other, "*": [SECRET, other]}
    assert rules.secrets_of(by_queue, "mail") == (other,)
    assert rules.secrets_of(by_queue, "default") == (SECRET, other)
    assert rules.secrets_of({"mail": SECRET}, "default") == ()
    assert rules.secrets_of(SECRET, "default") == (SECRET,)
    assert rules.secrets_of(None, "default") == ()


def test_hosts_are_names_addresses_and_networks() -> None:
    assert rules.is_hosts(["127.0.0.0/8", "::1", "hooks.internal", ".internal", "10.0.0.1", "my_host"])
    for value in ["127.0.0.1", ["http://host"], ["a b"], [""], [7], ["host/path"], ["*.internal"], ["host:80"]]:
        assert not rules.is_hosts(value)


def test_a_webhook_tells_neither_progress_nor_of_webhooks() -> None:
    assert not {event_names.PROGRESS, event_names.WEBHOOK_DELIVERED, event_names.WEBHOOK_FAILED} & {*rules.EVENTS}
    assert rules.event_problem(["job.started"]) == rules.event_problem([]) == ""
    assert "no event" in rules.event_problem(["job.progress"])
    assert "must be a list" in rules.event_problem("job.started")


@pytest.mark.parametrize(("attempts", "base"), [(1, DELAYS[0]), (2, DELAYS[1]), (7, DELAYS[6]), (50, DELAYS[-1]), (0, DELAYS[0])])
def test_a_delay_grows_with_the_attempts_and_is_spread_never_below_its_step(attempts: int, base: float) -> None:
    found = [rules.delay_seconds(DELAYS, attempts) for _ in range(500)]
    assert base <= min(found)
    assert max(found) <= base * 1.25
    assert max(found) - min(found) > 0.2 * base


def test_a_receiver_may_ask_for_more_time_but_for_no_less_and_at_most_a_day() -> None:
    assert 100 <= rules.delay_seconds(DELAYS, 1, 100) <= 125
    assert 5 <= rules.delay_seconds(DELAYS, 1, 0) <= 6.25
    assert 86_400 <= rules.delay_seconds(DELAYS, 1, 10**9) <= 108_000


def test_delays_are_a_list_of_numbers() -> None:
    assert rules.is_delays([0, 1.5])
    for value in [[], 5, "5", [-1], [True], ["5"], [float("nan")], [float("inf")], [604_801]]:
        assert not rules.is_delays(value)


def test_retry_after_is_seconds_or_a_date() -> None:
    now = datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert rules.retry_after_seconds("120") == 120
    assert rules.retry_after_seconds("Thu, 01 Jan 2026 12:01:00 GMT", now) == 60
    assert rules.retry_after_seconds("Thu, 01 Jan 2026 11:00:00 GMT", now) == 0
    for text in [None, "", "soon", "-5", "1.5", "9" * 200, "²"]:
        assert rules.retry_after_seconds(text) is None
