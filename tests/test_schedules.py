"""Schedules that the code declares: what is refused, how the rows change, and the verbs of operators."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.test import override_settings

import jobqueue
from jobqueue import clock
from jobqueue.exceptions import InvalidArguments, InvalidOption
from jobqueue.lifecycle import wakeup
from jobqueue.models import Job, Schedule, ScheduleTick
from jobqueue.schedules import declarations, jobs, sync
from jobqueue.schedules import ticks as verbs
from tests.factories import ScheduleFactory
from tests.rivals import Rival, together, wait_until_somebody_waits_for_a_lock
from tests.tasks import add, count_slowly

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
NIGHTLY: dict[str, Any] = {"cron": "0 3 * * *", "time_zone": "Europe/Berlin", "args": (1,)}


@pytest.fixture(autouse=True)
def clean_slate() -> Iterator[None]:
    """Start each test without declarations, and restore them afterwards."""
    before = dict(declarations._declared)
    declarations._declared.clear()
    yield
    declarations._declared.clear()
    declarations._declared.update(before)


def declare(name: str = "nightly", task: Any = add, **changes: Any) -> None:
    jobqueue.schedule(name, task, **{**NIGHTLY, **changes})


def redeclare(**changes: Any) -> None:
    declarations._declared.clear()
    declare(**changes)


def row(name: str = "nightly") -> Schedule:
    return Schedule.objects.get(name=name)


# Declarations


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"name": ""}, "The name of the schedule is ''; it must be text of 1 to 200 characters"),
        ({"name": "x" * 201}, "it must be text of 1 to 200 characters"),
        ({"name": "a\0b"}, "without NUL"),
        ({"task": "nodots"}, "The task of the schedule is 'nodots'; it must be a task, or its dotted path"),
        ({"task": print}, "it must be a task, or its dotted path such as 'shop.tasks.build_report'"),
        ({"cron": "0 0 30 2 *"}, "'0 0 30 2 \\*' cannot be read: Bad day-of-month. For example, '0 3 \\* \\* \\*'"),
        ({"cron": "soon"}, "cannot be read: Wrong number of fields"),
        ({"cron": 5}, "cron is 5; it must be text"),
        ({"cron": ""}, "either cron or an interval, but none is given"),
        ({"interval": 60}, "either cron or an interval, but both are given"),
        ({"cron": "", "interval": 0.5}, "The interval is 0.5; it must be a whole number of seconds from 1"),
        ({"cron": "", "interval": timedelta(seconds=90.5)}, "The interval is 90.5"),
        ({"cron": "", "interval": True}, "The interval is True"),
        ({"time_zone": "Europe/Berlni"}, "'Europe/Berlni' is not known here: did you mean 'Europe/Berlin'"),
        ({"time_zone": ""}, "The time zone '' is not known here"),
        ({"missed": "never"}, "missed is 'never'; it must be one of skip, once, all"),
        ({"missed": "all", "missed_limit": 0}, "missed_limit is 0; it must be a whole number from 1 to 1000"),
        ({"missed_limit": 10_000}, "missed_limit is 10000"),
        ({"priority": 101}, "priority is 101; it must be a whole number from -100 to 100"),
        ({"queue_name": "q" * 201}, "queue_name is 'qqq"),
        ({"tenant": "a\nb"}, "tenant is 'a\\\\nb'"),
        ({"target": "a/b"}, "target is 'a/b'"),
        ({"target": lambda: "x"}, "a schedule's target must be text"),
        ({"kwargs": {"c": 1}}, "The arguments do not fit the task: got an unexpected keyword argument 'c'. It takes: a, b."),
        ({"args": ()}, "missing a required argument: 'a'"),
        ({"task": count_slowly, "args": (1, 2)}, "too many positional arguments. It takes: seconds."),
        ({"args": (NOON,)}, r"args\[0\] is of type datetime.datetime, which JSON does not have"),
        ({"kwargs": {"b": "\0"}}, "NUL character"),
    ],
)
def test_values_from_which_no_job_can_be_enqueued_are_refused_at_the_declaration(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises((InvalidOption, InvalidArguments), match=text):
        declare(**wrong)
    assert declarations.declared() == []


def test_a_name_has_one_declaration() -> None:
    declare()
    declare()  # a module that is imported twice says the same again
    with pytest.raises(InvalidOption, match="The schedule 'nightly' is declared twice, with different contents"):
        declare(cron="0 4 * * *")
    assert declarations.declared() == ["nightly"]


def test_a_task_may_be_named_by_its_path_and_the_context_is_none_of_the_arguments() -> None:
    declare("by-path", "tests.tasks.add")
    declare("with-context", count_slowly, args=[5.0])
    assert declarations.declared() == ["by-path", "with-context"]


# Rows


@pytest.mark.django_db
def test_a_declaration_becomes_a_row_whose_first_time_lies_ahead() -> None:
    declare(kwargs={"b": (1, 2)}, queue_name="mail", priority=5, tenant="acme", target="t", missed="all", missed_limit=7)
    assert jobqueue.sync_schedules() == 1
    one = row()
    assert (one.source, one.task, one.args, one.kwargs) == ("code", "tests.tasks.add", [1], {"b": [1, 2]})
    assert one.options == {"queue_name": "mail", "priority": 5, "tenant": "acme", "target": "t"}
    assert (one.cron, one.interval_seconds, one.time_zone, one.missed, one.missed_limit) == ("0 3 * * *", None, "Europe/Berlin", "all", 7)
    assert one.next_at == one.timing.after(clock.now())
    assert one.next_at > clock.now()


@pytest.mark.django_db
def test_a_second_start_changes_and_locks_nothing(django_assert_num_queries: Any) -> None:
    declare(kwargs={"b": (1, {"x": 1e16})})
    declare("hourly", cron="", interval=timedelta(hours=1))
    jobqueue.sync_schedules()
    with django_assert_num_queries(1):
        assert jobqueue.sync_schedules() == 0


@pytest.mark.django_db
@override_settings(TIME_ZONE="Asia/Tokyo")
def test_the_projects_time_zone_is_only_the_default() -> None:
    declare()
    declare("japanese", time_zone=None)
    jobqueue.sync_schedules()
    assert [row(name).time_zone for name in ("nightly", "japanese")] == ["Europe/Berlin", "Asia/Tokyo"]
    assert row().timing.after(NOON) == datetime(2026, 6, 2, 1, tzinfo=UTC)
    assert row("japanese").timing.after(NOON) == datetime(2026, 6, 1, 18, tzinfo=UTC)


@pytest.mark.django_db
def test_changes_of_the_code_are_applied_and_decisions_of_operators_stay() -> None:
    declare()
    jobqueue.sync_schedules()
    jobqueue.disable_schedule("nightly")
    Schedule.objects.update(next_at=NOON, last_at=NOON)
    redeclare(args=(2,), enabled=True)
    assert jobqueue.sync_schedules() == 1
    assert (row().args, row().enabled, row().next_at, row().last_at) == ([2], False, NOON, NOON)  # its times are the same
    jobqueue.enable_schedule("nightly")
    redeclare(enabled=False)
    jobqueue.sync_schedules()
    assert row().enabled
    Schedule.objects.update(next_at=NOON)
    redeclare(cron="30 3 * * *")
    jobqueue.sync_schedules()
    assert row().next_at == row().timing.after(clock.now())  # a new timing is counted from now


@pytest.mark.django_db
def test_a_schedule_that_is_no_longer_declared_is_retired_and_returns_with_its_ticks() -> None:
    declare()
    ScheduleFactory(name="made-by-hand")
    jobqueue.sync_schedules()
    ScheduleTick.objects.create(schedule=row(), nominal_at=NOON)
    declarations._declared.clear()
    assert jobqueue.sync_schedules() == 1
    assert not row().active
    assert row().enabled
    assert row("made-by-hand").active
    assert jobqueue.sync_schedules() == 0
    Schedule.objects.filter(name="nightly").update(next_at=NOON)
    declare()
    assert jobqueue.sync_schedules() == 1
    assert row().active
    assert row().next_at > clock.now()  # nothing was missed meanwhile
    assert row().ticks.count() == 1


@pytest.mark.django_db
def test_a_row_that_was_made_by_hand_becomes_that_of_the_code() -> None:
    ScheduleFactory(name="nightly", enabled=False)
    declare()
    jobqueue.sync_schedules()
    assert (row().source, row().cron, row().enabled) == ("code", "0 3 * * *", False)


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
def test_workers_that_start_together_make_one_row() -> None:
    for number in range(20):
        declare(f"schedule-{number}")
    assert sum(together(jobqueue.sync_schedules, jobqueue.sync_schedules)) == 20
    assert Schedule.objects.count() == 20


@pytest.mark.session
@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_locked_rows_are_not_waited_for_and_are_retried(rival: Rival) -> None:
    declare("changes")
    declare("goes")
    declare("stays")
    sync.write_declarations()
    declarations._declared.clear()
    declare("changes", args=(2,))
    declare("new")
    declare("stays")
    with connection.cursor() as cursor:
        cursor.execute("SET statement_timeout = '2s'")
    try:
        with rival.transaction():
            rival.do(lambda: list(Schedule.objects.select_for_update().all()))
            assert sync.write_declarations() == (1, 2)
            assert row("new").args == [1]
        assert sync.write_declarations() == (2, 0)
        assert sync.write_declarations() == (0, 0)
    finally:
        connection.close()
    assert (row("changes").args, row("goes").active, row("stays").active) == ([2], False, True)


@pytest.mark.django_db
def test_one_that_fails_for_whatever_reason_stops_no_other_and_an_outage_is_none(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a", "b", "c"):
        declare(name)
    create, errors = verbs.create, [RuntimeError("a signal of the project's"), OperationalError("the database is away")]

    def fail(schedule: Schedule) -> bool:
        if schedule.name == "b":
            raise errors.pop(0)
        return create(schedule)

    monkeypatch.setattr(verbs, "create", fail)
    assert sync.write_declarations() == (2, 1)
    assert "Schedule b: its declaration cannot be written to its row: RuntimeError: a signal of the project's" in caplog.text
    with pytest.raises(OperationalError):
        sync.write_declarations()
    monkeypatch.undo()
    assert sync.write_declarations() == (1, 0)


@pytest.mark.postgresql
@pytest.mark.django_db
def test_a_row_with_unreadable_values_delays_no_other_and_is_rewritten() -> None:
    declare("bad")
    declare("good")
    sync.write_declarations()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE jobqueue_schedule SET args = ('[' || repeat('9', 5000) || ']')::jsonb WHERE name = 'bad'")
    redeclare(name="bad")
    declare("good", args=(2,))
    assert sync.write_declarations() == (2, 0)
    assert (row("good").args, row("bad").args) == ([2], [1])


# What people decide


@pytest.mark.django_db
def test_enable_and_disable_return_what_they_changed() -> None:
    ScheduleFactory(name="nightly", next_at=NOON, last_error="no", retry_at=NOON)
    answer = jobqueue.disable_schedule("nightly")
    assert (answer.changed, answer.enabled, answer.next_at) == (True, False, None)
    assert not jobqueue.disable_schedule("nightly").changed
    answer = jobqueue.enable_schedule("nightly")
    assert (answer.changed, answer.enabled, answer.next_at) == (True, True, row().next_at)
    assert row().next_at > clock.now()
    assert (row().last_error, row().retry_at) == ("", None)
    assert not jobqueue.enable_schedule("nightly").changed


@pytest.mark.django_db
@pytest.mark.parametrize("name", ["nobody", "", "a\0b", None])
def test_a_schedule_that_is_not_there_is_reported(name: Any) -> None:
    for verb in (jobqueue.enable_schedule, jobqueue.disable_schedule, jobqueue.run_schedule_now):
        with pytest.raises(InvalidOption, match=r"There is no schedule .* 'manage.py jobqueue schedules' lists them"):
            verb(name)


@pytest.mark.django_db
def test_run_now_makes_a_job_and_leaves_the_times_as_they_are() -> None:
    schedule = ScheduleFactory(name="nightly", next_at=NOON, enabled=False, queue="mail")
    job = Job.objects.get(pk=jobqueue.run_schedule_now("nightly"))
    assert (job.args, job.queue, job.metadata) == ([1], "mail", {"schedule": {"name": "nightly", "nominal_at": None}})
    assert (row().next_at, row().last_at, schedule.ticks.count()) == (NOON, None, 0)


@pytest.mark.django_db
def test_run_now_of_a_bad_one_raises_and_makes_nothing() -> None:
    ScheduleFactory(name="nightly", task="tests.tasks.gone")
    with pytest.raises(InvalidOption, match="No registered task has the path"):
        jobqueue.run_schedule_now("nightly")
    assert not Job.objects.exists()


@pytest.mark.django_db
def test_a_definition_writes_its_own_fields_and_nothing_that_a_leader_wrote_meanwhile() -> None:
    old = ScheduleFactory(name="nightly", next_at=NOON)
    Schedule.objects.update(next_at=NOON + timedelta(minutes=1), last_at=NOON, last_job_id=7)
    old.args, old.last_job_id = [2], 1
    assert verbs.define(old, ["args"])
    assert (row().args, row().next_at, row().last_at, row().last_job_id) == ([2], NOON + timedelta(minutes=1), NOON, 7)
    assert not verbs.define(old, ["args"])


@pytest.mark.django_db
def test_a_name_that_is_taken_makes_no_second_row() -> None:
    ScheduleFactory(name="nightly", args=[5])
    assert not verbs.create(Schedule(name="nightly", task="tests.tasks.add", cron="* * * * *"))
    assert row().args == [5]


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_a_schedule_that_is_deleted_while_its_time_comes_is_gone_with_its_ticks(rival: Rival) -> None:
    schedule = ScheduleFactory(next_at=NOON)
    with rival.transaction():
        assert rival.do(verbs.tick, schedule.pk, NOON, jobs.enqueue_scheduled).jobs == 1
        with ThreadPoolExecutor(max_workers=1) as pool:
            gone = pool.submit(remove, schedule)
            wait_until_somebody_waits_for_a_lock()
            rival.do(rival._open.close)
            gone.result(20)
    assert (Schedule.objects.count(), ScheduleTick.objects.count(), Job.objects.count()) == (0, 0, 1)


def remove(schedule: Schedule) -> None:
    try:
        verbs.remove(schedule)
    finally:
        connection.close()


@pytest.mark.postgresql
@pytest.mark.django_db
def test_every_change_wakes_who_leads(django_capture_on_commit_callbacks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = list[str]()
    monkeypatch.setattr(wakeup, "_send", lambda alias, payload, **_: sent.append(payload))

    def told(call: Any, *args: Any) -> int:
        sent.clear()
        with django_capture_on_commit_callbacks(execute=True):
            call(*args)
        return sent.count("duties")

    declare()
    assert told(jobqueue.sync_schedules) == 1
    assert told(jobqueue.sync_schedules) == 0
    assert [told(jobqueue.disable_schedule, "nightly") for _ in range(2)] == [1, 0]
    assert told(jobqueue.enable_schedule, "nightly") == 1
    redeclare(args=(2,))
    assert told(jobqueue.sync_schedules) == 1
