"""Nominal times: over changes of the clock, after a downtime, and for invalid expressions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import islice, pairwise, takewhile
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st

from jobqueue.core.cron import Timing, due
from jobqueue.exceptions import InvalidOption

# The days of 2026 on which the clock is set forward and back.
CHANGES = {
    "America/New_York": (date(2026, 3, 8), date(2026, 11, 1)),
    "US/Pacific": (date(2026, 3, 8), date(2026, 11, 1)),
    "Europe/Berlin": (date(2026, 3, 29), date(2026, 10, 25)),
    "Australia/Lord_Howe": (date(2026, 10, 4), date(2026, 4, 5)),
}
USUAL = [zone for zone in CHANGES if zone != "Australia/Lord_Howe"]  # the clock goes from 2 to 3, and back by an hour at 2 or 3
LORD_HOWE = "Australia/Lord_Howe"  # from 2:00 to 2:30, and from 2:00 back to 1:30
MINUTE = timedelta(minutes=1)


def midnight(zone: str, day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone)).astimezone(UTC)


def times(expression: str, zone: str, day: date) -> list[datetime]:
    """Return all nominal times of one local day."""
    begin, end = midnight(zone, day), midnight(zone, day + timedelta(days=1))
    return list(takewhile(lambda one: one < end, Timing(expression, None, zone).times(begin - timedelta(seconds=1))))


def shown(expression: str, zone: str, day: date) -> list[str]:
    return [f"{one.astimezone(ZoneInfo(zone)):%H:%M %z}" for one in times(expression, zone, day)]


def ticking(zone: str, day: date) -> Iterator[datetime]:
    """Yield each instant of a local day that a clock shows which moves by ten seconds."""
    now, end = midnight(zone, day), midnight(zone, day + timedelta(days=1))
    while now < end:
        yield now
        now += timedelta(seconds=10)


# Over changes of the clock


@pytest.mark.parametrize("zone", USUAL)
@pytest.mark.parametrize(("expression", "short", "long"), [("0 * * * *", 23, 25), ("*/20 * * * *", 69, 75), ("*/15 * * * *", 92, 100)])
def test_a_wildcard_hour_follows_elapsed_time(zone: str, expression: str, short: int, long: int) -> None:
    for day, number in zip(CHANGES[zone], (short, long), strict=True):
        found = times(expression, zone, day)
        assert len(found) == number
        assert len({after - before for before, after in pairwise(found)}) == 1  # evenly


def test_a_change_by_half_an_hour_is_followed_too() -> None:
    spring, autumn = CHANGES[LORD_HOWE]
    assert [len(times("*/15 * * * *", LORD_HOWE, day)) for day in (spring, autumn)] == [94, 98]
    assert shown("0 * * * *", LORD_HOWE, spring)[:3] == ["00:00 +1030", "01:00 +1030", "03:00 +1100"]
    assert shown("*/30 * * * *", LORD_HOWE, autumn)[2:6] == ["01:00 +1100", "01:30 +1100", "01:30 +1030", "02:00 +1030"]
    assert len(times("0 * * * *", LORD_HOWE, autumn)) == 24


@pytest.mark.parametrize(
    ("zone", "expression", "spring", "autumn"),
    [
        ("America/New_York", "30 1 * * *", "01:30 -0500", "01:30 -0400"),
        ("America/New_York", "30 2 * * *", "03:00 -0400", "02:30 -0500"),
        ("US/Pacific", "30 1 * * *", "01:30 -0800", "01:30 -0700"),
        ("US/Pacific", "30 2 * * *", "03:00 -0700", "02:30 -0800"),
        ("Europe/Berlin", "30 1 * * *", "01:30 +0100", "01:30 +0200"),
        ("Europe/Berlin", "30 2 * * *", "03:00 +0200", "02:30 +0200"),
        ("Europe/Berlin", "0 12 * * *", "12:00 +0200", "12:00 +0100"),
        (LORD_HOWE, "30 1 * * *", "01:30 +1030", "01:30 +1100"),
        (LORD_HOWE, "30 2 * * *", "02:30 +1100", "02:30 +1030"),
        (LORD_HOWE, "15 2 * * *", "02:30 +1100", "02:15 +1030"),
        (LORD_HOWE, "0 12 * * *", "12:00 +1100", "12:00 +1030"),
    ],
)
def test_a_fixed_local_time_comes_once_a_day_the_first_time_or_at_the_end_of_the_gap(
    zone: str, expression: str, spring: str, autumn: str
) -> None:
    assert [shown(expression, zone, day) for day in CHANGES[zone]] == [[spring], [autumn]]


def test_several_fixed_times_in_one_gap_come_there_once() -> None:
    day = CHANGES["Europe/Berlin"][0]
    assert shown("*/15 2 * * *", "Europe/Berlin", day) == ["03:00 +0200"]
    assert shown("0,30 2,3 * * *", "Europe/Berlin", day) == ["03:00 +0200", "03:30 +0200"]


@pytest.mark.parametrize("zone", CHANGES)
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("expression", ["30 1 * * *", "30 2 * * *", "0 12 * * *", "*/15 * * * *", "0 * * * *", "*/20 * * * *"])
def test_each_time_is_found_once_whenever_the_next_one_is_computed(zone: str, which: int, expression: str) -> None:
    day = CHANGES[zone][which]
    timing, met = Timing(expression, None, zone), list[datetime]()
    next_at = timing.after(midnight(zone, day) - timedelta(seconds=1))
    for now in ticking(zone, day):
        if next_at <= now:
            met.append(next_at)
            next_at = timing.after(now)
        elif now.minute % 7 == 0:
            next_at = timing.after(now)  # as a leader does that begins here, also inside of the repeated hour
    assert met == times(expression, zone, day)


def by_hand(expression: str, zone: str, day: date) -> list[datetime]:
    """Return the times of a day, found by a check of each minute."""
    local = datetime.combine(day, datetime.min.time())
    walls = set(takewhile(lambda one: one < local + timedelta(days=1), CronSim(expression, local - MINUTE)))
    begin, end = midnight(zone, day), midnight(zone, day + timedelta(days=1))
    minutes = [begin + number * MINUTE for number in range((end - begin) // MINUTE)]
    found = list[datetime]()
    seen = set[datetime]()
    before = local - MINUTE
    for minute in minutes:
        wall = minute.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
        if "*" in expression.split()[1]:
            hit = wall in walls
        else:
            hit = any(before < one <= wall and one not in seen for one in walls)
            seen |= {one for one in walls if before < one <= wall}
        before = wall
        if hit:
            found.append(minute)
    return found


@pytest.mark.long
@settings(max_examples=40, deadline=None)
@given(
    zone=st.sampled_from([*CHANGES]),
    which=st.sampled_from([0, 1]),
    minute=st.sampled_from(["*", "0", "30", "15,45", "*/20", "7-11"]),
    hour=st.sampled_from(["*", "*/2", "1", "2", "3", "1,2,3", "0-4", "1-23/2"]),
)
def test_times_are_those_that_one_finds_by_looking_at_each_minute(zone: str, which: int, minute: str, hour: str) -> None:
    expression, day = f"{minute} {hour} * * *", CHANGES[zone][which]
    assert times(expression, zone, day) == by_hand(expression, zone, day)


def test_a_time_far_ahead_keeps_its_local_hour() -> None:
    now = datetime(2026, 1, 10, tzinfo=UTC)
    assert Timing("0 12 1 7 *", None, "Europe/Berlin").after(now) == datetime(2026, 7, 1, 10, tzinfo=UTC)
    assert Timing("0 * 1 7 *", None, "Europe/Berlin").after(now) == datetime(2026, 6, 30, 22, tzinfo=UTC)
    assert Timing("0 0 29 2 *").after(now) == datetime(2028, 2, 29, tzinfo=UTC)
    # At the end of a day that ends twice, and for no other day of the year.
    havana = Timing("30 * 1 11 *", None, "America/Havana")
    assert len(list(takewhile(lambda one: one < datetime(2026, 11, 3, tzinfo=UTC), havana.times(now)))) == 25


@pytest.mark.parametrize("zone", ["UTC", *CHANGES, "nonsense"])
def test_an_interval_knows_no_zones(zone: str) -> None:
    begin = datetime(2026, 10, 25, 0, 59, 59, 500_000, tzinfo=UTC)
    assert list(islice(Timing("", 3600, zone).times(begin), 3)) == [datetime(2026, 10, 25, hour, tzinfo=UTC) for hour in (1, 2, 3)]
    assert Timing("", 1).after(datetime(2026, 1, 1, tzinfo=UTC)) == datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)


# After a downtime

NOW = datetime(2026, 6, 1, 12, 0, 30, tzinfo=UTC)
DAYS_AGO = NOW.replace(second=0) - timedelta(days=3)
EACH_MINUTE = Timing("* * * * *")


def test_times_of_the_last_minute_get_their_job_with_any_rule_for_missed_times() -> None:
    for missed in ("skip", "once", "all"):
        assert due(EACH_MINUTE, NOW.replace(second=0), NOW, missed, 1) == [NOW.replace(second=0)]
        each_second = due(Timing("", 1), NOW - timedelta(seconds=60), NOW, missed, 1)
        assert (len(each_second), each_second[0], each_second[-1]) == (61, NOW - timedelta(seconds=60), NOW)


def test_a_minute_is_a_minute() -> None:
    begin = NOW.replace(second=0) - timedelta(days=1)
    daily = Timing("0 12 * * *")
    for seconds, number in ((60, 1), (60.5, 0)):
        assert len(due(daily, begin, NOW.replace(second=0) + timedelta(seconds=seconds), "skip", 1)) == number


@pytest.mark.long
def test_after_a_downtime_the_policy_decides() -> None:
    newest = NOW.replace(second=0)
    assert due(EACH_MINUTE, DAYS_AGO, NOW, "once", 100) == [newest]
    assert due(EACH_MINUTE, DAYS_AGO, NOW, "skip", 100) == [newest]
    assert due(EACH_MINUTE, DAYS_AGO, NOW, "all", 100) == [newest - number * MINUTE for number in range(99, -1, -1)]
    assert len(due(EACH_MINUTE, DAYS_AGO, NOW, "all", 1000)) == 1000
    daily = Timing("0 3 * * *")
    begin = datetime(2026, 5, 30, 3, tzinfo=UTC)
    assert due(daily, begin, NOW, "once", 100) == [begin + timedelta(days=2)]
    assert due(daily, begin, NOW, "skip", 100) == []
    assert due(daily, begin, NOW, "all", 100) == [begin + timedelta(days=number) for number in range(3)]
    assert due(daily, begin, NOW, "all", 2) == [begin + timedelta(days=number) for number in (1, 2)]


@pytest.mark.parametrize("timing", [EACH_MINUTE, Timing("", 1), Timing("* * * 1 *", None, "Europe/Berlin")])
def test_a_downtime_of_years_costs_no_walk_over_what_was_missed(timing: Timing) -> None:
    begin = time.process_time()
    assert len(due(timing, timing.after(datetime(2020, 1, 1, tzinfo=UTC)), NOW, "once", 100)) == 1
    assert time.process_time() - begin < 0.5  # the walk takes a minute


@pytest.mark.long
@settings(max_examples=25, deadline=None)
@given(ago=st.integers(61, 12_000), number=st.integers(1, 40), expression=st.sampled_from(["*/7 * * * *", "* 3 * * *", "5 4 * * 1"]))
def test_bisection_finds_what_a_walk_finds(ago: int, number: int, expression: str) -> None:
    timing = Timing(expression, None, "Europe/Berlin")
    first = timing.after(NOW - ago * MINUTE)
    walked = list(takewhile(lambda one: one <= NOW, timing.times(first - timedelta(seconds=1))))
    if first <= NOW - MINUTE:
        assert due(timing, first, NOW, "all", number) == walked[-number:]


# What makes no sense


@pytest.mark.parametrize(
    ("timing", "text"),
    [
        (Timing("0 0 30 2 *"), "cannot be read: Bad day-of-month"),
        (Timing("0 0 31 4,6 *"), "cannot be read: Bad day-of-month"),
        (Timing("0 0 * 2 2#5", None, "Mars/Base"), "'Mars/Base' is not known here"),
        (Timing("every day"), "cannot be read: Wrong number of fields"),
        (Timing("@daily"), "For example, '0 3 \\* \\* \\*' is every night at three"),
        (Timing("0 0 3 * * *"), "Wrong number of fields"),
        (Timing("0 24 * * *"), "Bad hour"),
        (Timing("*/0 * * * *"), "Bad minute"),
        (Timing("\0 * * * *"), "Bad minute"),
        (Timing("1," * 200 + "1 * * * *"), "longer than 200 characters"),
        (Timing("0 3 * * *", None, "Europe/Berlni"), "did you mean 'Europe/Berlin'"),
        (Timing("0 3 * * *", None, "America"), "is not known here"),
        (Timing("0 3 * * *", None, "../../etc/passwd"), "is not known here"),
        (Timing("0 3 * * *", None, ""), "it must be a name such as 'Europe/Berlin' or 'UTC'"),
        (Timing("0 3 * * *", None, "x" * 5000), "is not known here"),
        (Timing("", 0), "The interval is 0; it must be a whole number of seconds from 1"),
        (Timing("", 10**9), "to 31622400"),
        (Timing("0 3 * * *", 60), "either cron or an interval, but both are given"),
        (Timing(), "either cron or an interval, but none is given"),
    ],
)
def test_invalid_values_are_refused_with_the_reason(timing: Timing, text: str) -> None:
    begin = time.process_time()
    with pytest.raises(InvalidOption, match=text):
        timing.check(NOW)
    assert time.process_time() - begin < 1.0


def test_a_day_that_never_comes_ends_the_search() -> None:
    assert Timing("0 0 29 2 */7").after(NOW).year == 2032  # the next 29 February that is a Sunday
    with pytest.raises(InvalidOption, match=r"is not due within 50 years: no such day exists"):
        Timing("0 0 */30 2 MON#5").check(NOW)
