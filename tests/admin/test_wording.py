"""The format of durations and texts in the admin."""

from datetime import UTC, datetime

import pytest

from jobqueue.admin import formatting

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0.00 s"),
        (0.214, "0.21 s"),
        (9.94, "9.9 s"),
        (59.9, "59 s"),
        (60, "1 min 00 s"),
        (3599, "59 min 59 s"),
        (7500, "2 h 05 min"),
        (86400 * 3 + 4 * 3600, "3 d 4 h"),
    ],
)
def test_a_duration_has_at_most_two_units(seconds: float, text: str) -> None:
    assert formatting.duration(seconds) == text


@pytest.mark.usefixtures("shown_in_utc")
def test_a_moment_shows_its_distance() -> None:
    assert "2026-03-01 12:00:00 UTC" in formatting.moment(NOON)
    assert "5.0 s ago" in formatting.moment(NOON, NOON.replace(second=5))
    assert "in 5.0 s" in formatting.moment(NOON.replace(second=5), NOON)


def test_an_invalid_time_is_not_read_as_one() -> None:
    assert formatting.parsed("2026-03-01T12:00:00+00:00") == NOON
    assert [formatting.parsed(value) for value in (None, 7, "", "yesterday", ["x"])] == [None] * 5


def test_a_long_text_keeps_its_beginning_and_its_end() -> None:
    text = formatting.excerpt("a" * 500 + "b" * 5000 + "c" * 500, 1000)
    assert text.startswith("a" * 500 + "\n")
    assert text.endswith("\n" + "c" * 500)
    assert "5,000 of 6,000 characters left out" in text
    assert formatting.excerpt("short", 1000) == "short"


def test_secrets_in_a_shortened_text_stay_hidden() -> None:
    text = formatting.prose("x" * 90 + " password=" + "s" * 200, 200)
    assert "ssss" not in text
