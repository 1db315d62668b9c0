"""The search language as a text: what is accepted, and what each error says."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobqueue.core.search import ArgumentCondition, Search, parse
from jobqueue.exceptions import InvalidSearch

PUBLIC = "0ea8d2b1-7c1e-8000-8000-000000000007"


def parsed(text: str) -> Search:
    return parse(text, {PUBLIC: 7}.get, ["code"])


def test_a_job_is_named_by_its_number_or_its_public_id() -> None:
    assert parsed("7") == parsed("#7") == parsed(f" {PUBLIC} ") == parsed(f"7 {PUBLIC}") == Search(7)
    assert parsed("") == Search()


def test_fields_and_quoted_values_are_read() -> None:
    found = parsed('error:"timed \\"out\\"" target:customer:7 status:error tenant: queue:mail')
    assert found.texts == {"error": 'timed "out"', "target": "customer:7", "status": "ERROR", "tenant": "", "queue": "mail"}


def test_times_are_lengths_or_iso_times() -> None:
    at = datetime(2026, 1, 2, 3, tzinfo=UTC)
    assert parsed("since:2h until:90s").times == {"since": timedelta(hours=2), "until": timedelta(seconds=90)}
    assert parsed("since:2026-01-02T03:00 until:2026-01-02T04:00+01:00").times == {"since": at, "until": at}


def test_a_number_in_an_argument_means_the_number_and_the_text() -> None:
    found = parsed('order_id=7 args.user.id=1.5 args.items.0.name="7" on=true why=a=b:c')
    assert found.arguments == (
        ArgumentCondition(("order_id",), (7, "7")),
        ArgumentCondition(("user", "id"), (1.5, "1.5")),
        ArgumentCondition(("items", 0, "name"), ("7",)),
        ArgumentCondition(("on",), (True, "true")),
        ArgumentCondition(("why",), ("a=b:c",)),
    )


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("send", "'send' is no part of a search; it must be the number .* write task:send for a task"),
        ("0", "'0' is no part of a search"),
        ("7 8", "names the jobs 7 and 8; it can name one"),
        ("sort:x", "'sort' is no field of a search; the fields are error, kind, .* write NAME=VALUE"),
        ("queue:a queue:b", "queue: is given twice; .* Remove one"),
        ("status:FAILED", "status is 'FAILED'; it must be one of PENDING, QUEUED"),
        ("queue:", "queue: has no value"),
        ("since:soon", "since is 'soon'; it must be a number with s, m, h, d or w .* For example, 2h"),
        ("since:999999999w", "since is '999999999w'"),
        ("until:0001-01-01", "until is '0001-01-01'; .* it must lie between 1970-01-01"),
        ('error:"x', "quotation mark without its pair"),
        ('"', "quotation mark without its pair"),
        ("=7", "'' is no argument; write its name"),
        ("args.user..id=7", "'args.user..id' is no argument"),
        ("api_key=7", "'api_key' is the name of a secret, .* Search for another argument"),
        ("args.user.password=x", "'password' is the name of a secret"),
        ("code=1", "'code' is the name of a secret"),
        ("a\0b=1", "no NUL"),
        ("x" * 1001, "at most 1000 characters"),
        ("a=1 " * 21, "has 21 parts; it can have 20"),
    ],
)
def test_an_error_names_the_value_the_rule_and_the_fix(text: str, error: str) -> None:
    with pytest.raises(InvalidSearch, match=error):
        parsed(text)


@given(st.text(max_size=60))
def test_any_text_is_a_search_or_a_clear_error(text: str) -> None:
    with contextlib.suppress(InvalidSearch):
        assert isinstance(parsed(text), Search)
