"""The next time of a schedule follows its timing and the rules of time zones, however they change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from jobqueue.core import cron
from jobqueue.duties import enqueue_scheduled_jobs as duty_of_schedules
from jobqueue.duties.base import Report
from jobqueue.duties.enqueue_scheduled_jobs import EnqueueScheduledJobs
from jobqueue.models import Schedule
from jobqueue.schedules import ticks as verbs
from tests.factories import ScheduleFactory

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
SECOND, MINUTE, HOUR, DAY = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


class Shifted(tzinfo):
    """A replacement for a zone whose rules a new version of tzdata has changed."""

    def __init__(self, hours: int) -> None:
        self.delta = hours * HOUR

    def utcoffset(self, when: datetime | None) -> timedelta:
        return self.delta

    def dst(self, when: datetime | None) -> timedelta:
        return timedelta()


@pytest.fixture
def rules(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Set the offset of all zones, and the version of the rules."""

    def put(hours: int, version: str) -> None:
        monkeypatch.setattr(cron, "zone_of", lambda name: Shifted(hours))
        monkeypatch.setattr(cron, "rules_version", lambda: version)

    return put


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duty_of_schedules, "REPLAN_SECONDS", 0.0)


def run(now: datetime) -> Report:
    return EnqueueScheduledJobs().run_once(now)


def ticks(schedule: Schedule) -> list[datetime]:
    return list(schedule.ticks.order_by("nominal_at").values_list("nominal_at", flat=True))


def next_at(schedule: Schedule) -> datetime | None:
    return Schedule.objects.get(pk=schedule.pk).next_at


def planned(now: datetime, **values: Any) -> Schedule:
    """Make a schedule that a leader has planned at a time."""
    schedule = ScheduleFactory(next_at=None, **values)
    run(now)
    return schedule


# The rules of time zones


@pytest.mark.parametrize(("missed", "jobs"), [("all", 1), ("once", 1), ("skip", 0)])
def test_a_run_that_new_rules_put_before_now_was_missed_and_is_not_lost(rules: Any, missed: str, jobs: int) -> None:
    rules(0, "2026a")
    schedule = planned(NOON, cron="0 15 * * *", missed=missed)
    assert next_at(schedule) == NOON + 3 * HOUR
    rules(2, "2026b")  # 15:00 there is 13:00 in UTC now
    report = run(NOON + 90 * MINUTE)
    assert (report.items, ticks(schedule)) == (jobs, [NOON + HOUR][:jobs])
    assert next_at(schedule) == NOON + HOUR + DAY
    assert run(NOON + 4 * HOUR).items == 0


def test_new_rules_move_a_time_that_lies_ahead_in_both_directions(rules: Any) -> None:
    rules(0, "2026a")
    schedule = planned(NOON, cron="0 15 * * *")
    rules(-2, "2026b")
    run(NOON + MINUTE)
    assert next_at(schedule) == NOON + 5 * HOUR
    rules(1, "2026c")
    run(NOON + 2 * MINUTE)
    assert next_at(schedule) == NOON + 2 * HOUR


def test_each_leader_recomputes_even_if_the_version_is_unknown(rules: Any) -> None:
    rules(0, "")
    schedule = planned(NOON, cron="0 15 * * *")
    rules(2, "")
    run(NOON + MINUTE)
    assert next_at(schedule) == NOON + HOUR


def test_a_leader_recomputes_what_another_version_has_planned_meanwhile(rules: Any) -> None:
    rules(2, "2026b")
    leader = EnqueueScheduledJobs()
    schedule = ScheduleFactory(cron="0 15 * * *")
    leader.run_once(NOON)
    assert next_at(schedule) == NOON + HOUR
    rules(0, "2026a")  # a web process of the release before
    Schedule.objects.filter(pk=schedule.pk).update(enabled=False)
    verbs.enable_schedule(schedule.name)
    Schedule.objects.filter(pk=schedule.pk).update(counted_from=NOON, next_at=NOON + 3 * HOUR, planned_at=NOON + 3 * HOUR)
    rules(2, "2026b")
    leader.run_once(NOON + MINUTE)
    assert next_at(schedule) == NOON + HOUR


def test_a_time_that_was_set_by_hand_stays(rules: Any) -> None:
    rules(0, "2026a")
    schedule = planned(NOON, cron="0 15 * * *")
    Schedule.objects.update(next_at=NOON + 30 * MINUTE)
    rules(2, "2026b")
    run(NOON + 2 * MINUTE)
    assert next_at(schedule) == NOON + 30 * MINUTE
    rules(0, "2026c")
    run(NOON + 3 * MINUTE)
    assert next_at(schedule) == NOON + 30 * MINUTE


def test_a_tick_in_parts_is_counted_from_its_last_time(rules: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verbs, "AT_ONCE", 2)
    rules(0, "2026a")
    schedule = planned(NOON, cron="0 * * * *", missed="all")
    assert run(NOON + 5 * HOUR).items == 2
    assert run(NOON + 5 * HOUR).items == 2
    assert run(NOON + 5 * HOUR).items == 1
    assert ticks(schedule) == [NOON + hour * HOUR for hour in range(1, 6)]


def test_the_version_of_the_rules_is_read_from_this_machine() -> None:
    cron.rules_version.cache_clear()
    assert cron.rules_version()[:2] == "20"


# The timing


@pytest.mark.parametrize("way", ["update", "save", "sql"])
def test_a_timing_that_is_changed_in_any_way_counts_from_the_next_query(way: str) -> None:
    schedule = planned(NOON, cron="0 3 1 1 *")
    leader = EnqueueScheduledJobs()
    assert leader.run_once(NOON + SECOND).pause_seconds == 5.0  # so a change is seen after 5 s at most
    if way == "update":
        Schedule.objects.filter(pk=schedule.pk).update(cron="*/5 * * * *")
    elif way == "save":
        found = Schedule.objects.get(pk=schedule.pk)
        found.cron = "*/5 * * * *"
        found.save()
    else:
        with connection.cursor() as cursor:
            cursor.execute("UPDATE jobqueue_schedule SET cron = '*/5 * * * *'")
    leader.run_once(NOON + 6 * SECOND)
    assert next_at(schedule) == NOON + 5 * MINUTE
    assert leader.run_once(NOON + 5 * MINUTE).items == 1
    assert ticks(schedule) == [NOON + 5 * MINUTE]


@pytest.mark.parametrize(
    "change", [{"cron": "", "interval_seconds": 60}, {"time_zone": "Asia/Tokyo"}, {"cron": "30 3 * * *"}], ids=lambda one: next(iter(one))
)
def test_each_part_of_the_timing_counts(change: dict[str, Any]) -> None:
    schedule = planned(NOON, cron="0 3 * * *")
    before = next_at(schedule)
    Schedule.objects.update(**change)
    run(NOON + MINUTE)
    assert next_at(schedule) == Schedule.objects.get().timing.after(NOON + MINUTE) != before


def test_a_schedule_that_is_enabled_in_any_way_has_missed_nothing() -> None:
    schedule = planned(NOON, cron="*/5 * * * *", missed="all")
    Schedule.objects.update(enabled=False)
    run(NOON + MINUTE)
    Schedule.objects.update(enabled=True)
    assert run(NOON + 62 * MINUTE).items == 0
    assert next_at(schedule) == NOON + 65 * MINUTE


def test_other_changes_leave_the_time(rules: Any) -> None:
    rules(0, "2026a")
    schedule = planned(NOON, cron="0 15 * * *")
    Schedule.objects.update(args=[7], priority=3)
    run(NOON + MINUTE)
    assert next_at(schedule) == NOON + 3 * HOUR


def test_a_timing_that_cannot_be_read_is_set_aside_and_stops_no_other() -> None:
    bad, good = planned(NOON, cron="0 3 * * *"), planned(NOON, cron="*/5 * * * *")
    Schedule.objects.filter(pk=bad.pk).update(cron="nonsense")
    assert run(NOON + 5 * MINUTE).items == 1
    assert ticks(good) == [NOON + 5 * MINUTE]
    assert "Wrong number of fields" in Schedule.objects.get(pk=bad.pk).last_error


@pytest.mark.parametrize("values", ["cron = '', interval_seconds = NULL", "interval_seconds = 60", "cron = '', interval_seconds = 0"])
def test_a_row_with_no_timing_or_with_two_is_refused_by_the_database(values: str) -> None:
    ScheduleFactory(cron="* * * * *")
    with pytest.raises(IntegrityError, match="jobqueue_schedule_timing"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"UPDATE jobqueue_schedule SET {values}")
