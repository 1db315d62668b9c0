"""What a webhook's URL, secret, hosts and events may be, and when a message is tried again."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jobqueue import conf
from jobqueue.conf import problems
from jobqueue.core import webhook_rules as rules
from tests.webhooks.receivers import SECRET

GOOD = ("https://example.com/hook", "http://example.com:8080/?token=x", "https://[2001:db8::1]/x", "https://exämple.com/")


@pytest.mark.parametrize("url", GOOD)
def test_a_url_of_http_is_taken(url: str) -> None:
    assert rules.url_problem(url) == ""


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("", "1 to 2000 characters"),
        (None, "1 to 2000 characters"),
        ("https://example.com/" + "x" * 2000, "1 to 2000 characters"),
        ("ftp://example.com/", "https:// or http://"),
        ("//example.com/", "https:// or http://"),
        ("javascript:alert(1)", "https:// or http://"),
        ("http://a@127.0.0.1/", "no user name or password"),
        ("http://a:b@example.com/", "no user name or password"),
        ("http:///hook", "must name a host"),
        ("http://example.com:99999/", "valid host and port"),
        ("http://example.com:0/", "from 1 to 65535"),
        ("http://[::1/", "valid host and port"),
        ("http://example.com/a b", "no spaces"),
        ("http://example.com/\nx", "no spaces"),
        ("http://example.com\\@127.0.0.1/", "backslashes"),
    ],
)
def test_an_invalid_url_of_a_receiver_is_refused_with_the_reason(url: Any, text: str) -> None:
    assert text in rules.url_problem(url)


@pytest.mark.parametrize("value", [SECRET, SECRET.removeprefix("whsec_"), [SECRET], {"mail": SECRET, "*": [SECRET, SECRET]}])
def test_secrets_are_a_text_several_or_some_for_each_queue(value: Any) -> None:
    assert problems({"WEBHOOK_SECRET": value}) == []


@pytest.mark.parametrize("value", ["hunter2hunter2hunter2!", "whsec_c2hvcnQ=", [], ["x"], {"mail": 3}, {3: SECRET}, 7, b"x"])
def test_a_wrong_secret_is_reported_and_never_shown(value: Any) -> None:
    (problem,) = problems({"WEBHOOK_SECRET": value})
    assert (problem.id, problem.message) == ("E002", "WEBHOOK_SECRET is ********.")


def test_each_queue_has_its_secret_and_all_others_theirs() -> None:
    other = SECRET[:-4] + "AAAA"
    given = {"mail": [SECRET, other], "*": other}
    assert rules.secrets_of(given, "mail") == (SECRET, other)
    assert rules.secrets_of(given, "images") == (other,)
    assert rules.secrets_of({"mail": SECRET}, "images") == ()
    assert rules.secrets_of(None, "images") == ()
    assert rules.secrets_of(SECRET, "images") == (SECRET,)


@pytest.mark.parametrize("value", [["http://example.com"], "example.com", ["a b"], [3], ["10.0.0.0/99"], [""], ["a.b/c"]])
def test_hosts_that_are_none_are_refused(value: Any) -> None:
    assert [problem.id for problem in problems({"WEBHOOK_ALLOWED_HOSTS": value})] == ["E002"]


def test_hosts_are_names_suffixes_addresses_and_networks() -> None:
    hosts = ("hooks.internal", ".example.com", "10.0.0.0/8", "::1")
    assert problems({"WEBHOOK_ALLOWED_HOSTS": list(hosts)}) == []
    assert [str(one) for one in rules.networks(hosts)] == ["10.0.0.0/8", "::1/128"]
    named = {
        one: rules.is_named(one, hosts)
        for one in ("hooks.internal", "HOOKS.internal.", "a.example.com", "example.com", "badexample.com", "10.0.0.1")
    }
    assert [name for name, found in named.items() if found] == ["hooks.internal", "HOOKS.internal.", "a.example.com"]


def test_events_are_those_about_jobs() -> None:
    assert rules.event_problem(["job.completed", "job.retrying"]) == ""
    assert "'job.webhook.failed' is not an event" in rules.event_problem(["job.webhook.failed"])
    assert "must be a list" in rules.event_problem("job.completed")


def test_attempts_come_ever_more_seldom_with_jitter_and_never_too_early() -> None:
    for number, least in enumerate(rules.DELAYS, 1):
        waits = [rules.delay_seconds(rules.DELAYS, number) for _ in range(500)]
        assert least <= min(waits) <= max(waits) <= least * 1.25
        assert max(waits) - min(waits) >= 0.2 * least
    assert rules.delay_seconds(rules.DELAYS, 99) >= rules.DELAYS[-1]


def test_a_receiver_may_ask_for_more_time_but_not_for_less_nor_for_ever() -> None:
    assert 100 <= rules.delay_seconds(rules.DELAYS, 1, 100) <= 125
    assert 5 <= rules.delay_seconds(rules.DELAYS, 1, 0) <= 6.25
    assert rules.delay_seconds(rules.DELAYS, 1, 1e9) <= rules.MAX_RETRY_AFTER * 1.25


def test_retry_after_is_a_number_or_a_date() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert rules.retry_after_seconds("120") == 120
    assert rules.retry_after_seconds("Thu, 01 Jan 2026 00:01:00 GMT", now) == 60
    assert rules.retry_after_seconds("Thu, 01 Jan 2025 00:01:00 GMT", now) == 0
    assert [rules.retry_after_seconds(text) for text in (None, "", "soon", "-5", "١٢", "9" * 200)] == [None] * 6


@given(
    st.text(max_size=90)
    | st.builds("Fri, {} Dec {} {}:00:00 {}".format, *[st.integers()] * 3, st.sampled_from(["GMT", "+9999", "-99999999"]))
)
@example("Fri, 99999999999999999999 Dec 2026 00:00:00 GMT")
@example("Fri, 31 Dec 9999 23:59:59 -2359")
@example("Fri, 01 Jan 0001 00:00:00 +2359")
def test_no_header_whatever_it_says_raises(text: str) -> None:
    found = rules.retry_after_seconds(text)
    assert found is None or found >= 0


@pytest.mark.parametrize("value", [[], 5, "5", [-1], [True], ["5"], [float("nan")], [float("inf")], [604_801]])
def test_times_between_attempts_that_are_none_are_refused(value: Any) -> None:
    assert rules.is_delays([0, 1.5])
    assert [problem.id for problem in problems({"WEBHOOK_RETRY_SECONDS": value})] == ["E002"]


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


@pytest.mark.parametrize(
    "rest",
    ["/services/T0/B0/hunter2", "/a;hunter2", "/#hunter2", "?hunter2", "/?sig=hunter2", "#hunter2", ";hunter2", "//hunter2", "/hunter2/"],
)
def test_a_url_is_shown_by_its_origin_and_a_hash(rest: str) -> None:
    shown = rules.shown_url(f"https://hooks.example:8443{rest}")
    assert re.fullmatch(r"https://hooks\.example:8443/… \[[0-9a-f]{8}\]", shown)
    assert shown != rules.shown_url(f"https://hooks.example:8443{rest}x")
    assert rules.shown_url(shown) == shown


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://hooks.example", "https://hooks.example"),
        ("https://hooks.example/", "https://hooks.example/"),
        ("example.com", "example.com"),
        ("", ""),
    ],
)
def test_a_url_that_holds_nothing_else_is_shown_whole(url: str, shown: str) -> None:
    assert rules.shown_url(url) == shown


@pytest.mark.parametrize(
    "url", ["https://bob:hunter2@hooks.example/x", "bob:hunter2@x", "http://[hunter2", "/hunter2", "", "\ud800/hunter2"]
)
def test_no_odd_url_shows_more(url: str) -> None:
    assert "hunter2" not in rules.shown_url(url)


def per_receiver(queue: str, tenant: str, origin: str) -> str | None:
    return SECRET if (queue, tenant, origin) == ("mail", "acme", "https://a.example") else None


def test_a_callable_gives_each_receiver_its_secret(settings: Any) -> None:
    for value in (per_receiver, f"{__name__}.per_receiver"):
        settings.JOBQUEUE = {"WEBHOOK_SECRET": value}
        found = conf.webhook_secret()
        assert rules.secrets_of(found, "mail", "acme", "https://a.example") == (SECRET,)
        assert rules.secrets_of(found, "mail", "acme", "https://b.example") == ()


@pytest.mark.parametrize("answer", ["short", 3, [], [SECRET, "short"], {"*": SECRET}])
def test_an_invalid_result_of_a_callable_is_refused(answer: Any) -> None:
    with pytest.raises(ValueError, match="not a secret"):
        rules.secrets_of(lambda *_: answer, "mail", "acme", "https://a.example")
