"""Large values are cut before they are masked: what is shown stays small, and says that something is missing."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobqueue.core.capping import CUT, SHOWN_BYTES, capped
from jobqueue.core.masking import Mask
from jobqueue.insight.report import report
from tests.factories import JobFactory

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.mark.long
@given(JSON)
def test_a_small_value_is_returned_as_it_is(value: Any) -> None:
    if len(json.dumps(value)) < 1000:
        assert capped(value, 10_000) == value


@pytest.mark.long
@given(JSON, st.integers(0, 200))
def test_of_a_large_value_the_beginning_is_left(value: Any, most: int) -> None:
    shown = capped(value, most)
    assert type(shown) is type(value) or shown == CUT
    assert len(json.dumps(shown, ensure_ascii=False)) < 2 * most + 60 * (1 + json.dumps(value).count("[") + json.dumps(value).count("{"))


@pytest.mark.parametrize(
    "value",
    [
        "x" * 5_000_000,
        ["x" * 5_000_000],
        {"a": "x" * 5_000_000},
        list(range(1_000_000)),
        {str(number): number for number in range(500_000)},
        [[]] * 1_000_000,
        10**1_000_000,
        [{"a": ["x" * 10_000] * 100}] * 100,
    ],
    ids=lambda value: type(value).__name__,
)
def test_megabytes_are_cut_with_a_note(value: Any) -> None:
    text = str(capped(value))
    assert len(text) < 2 * SHOWN_BYTES
    assert CUT in text


def test_a_value_without_an_end_is_cut() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert len(str(capped(deep))) < 1000


def test_a_secret_is_not_cut_in_half_before_it_is_hidden() -> None:
    mask = Mask(values=["the-known-value"])
    for most in range(4, 60):
        for text in ("xxxxxxxxxxxx the-known-value and more", "xxxxxxxxxxxxx password=hunter2-hunter2-hunter2 and more"):
            shown = str(mask.value(capped(text, most, mask)))
            assert "the-k" not in shown
            assert "hun" not in shown


@pytest.mark.long
@pytest.mark.django_db
def test_the_report_for_a_stream_or_a_page_takes_no_time_and_hides_what_it_hid() -> None:
    plain = " ".join(f"name{number}: value" for number in range(300_000))
    entry = {"attempt": 1, "outcome": "ERROR", "message": f"password=hunter2 {plain}", "traceback": plain}
    job = JobFactory(running=True, args=[plain], kwargs={"token": "hunter3", "more": plain}, metadata={"a": plain}, history=[entry] * 5)
    began = time.process_time()
    shown = report(job, tracebacks=True, most=SHOWN_BYTES)
    assert time.process_time() - began < 1.5, "it took 40 s"
    text = json.dumps(shown)
    assert len(text) < 8 * SHOWN_BYTES
    assert "hunter" not in text
    assert shown["runs"]
