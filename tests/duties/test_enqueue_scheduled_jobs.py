"""The duty of schedules: each nominal time gets one job in spite of failures, and a bad schedule does not stop other schedules."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from jobqueue import clock, task
from jobqueue.duties import enqueue_scheduled_jobs as duty_of_schedules
from jobqueue.duties.base import Report
from jobqueue.duties.enqueue_scheduled_jobs import EnqueueScheduledJobs
from jobqueue.exceptions import LeadershipLost
from jobqueue.insight.problems import problems
from jobqueue.models import Job, Schedule, ScheduleTick
from jobqueue.schedules import plans
from jobqueue.schedules import ticks as verbs
from tests.factories import JobFactory, ScheduleFactory
from tests.rivals import Rival, together
from tests.worker.whole import until

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
SECOND, MINUTE, DAY = timedelta(seconds=1), timedelta(minutes=1), timedelta(days=1)


def run(now: datetime) -> Report:
    return EnqueueScheduledJobs().run_once(now)


def ticks(schedule: Schedule) -> list[datetime]:
    return list(ScheduleTick.objects.filter(schedule=schedule).order_by("nominal_at").values_list("nominal_at", flat=True))


def fresh(schedule: Schedule) -> Schedule:
    return Schedule.objects.get(pk=schedule.pk)


# One job for each time


def test_a_time_that_has_come_gets_its_job_and_the_schedule_moves_on() -> None:
    schedule = ScheduleFactory(cron="*/5 * * * *", next_at=NOON, args=[1], kwargs={"b": 2}, queue="mail", priority=7)
    report = run(NOON + SECOND)
    job = Job.objects.get()
    assert report == Report(items=1, pause_seconds=5.0)
    assert (job.task, job.args, job.kwargs, job.queue, job.priority) == ("tests.tasks.add", [1], {"b": 2}, "mail", 7)
    assert job.metadata == {"schedule": {"name": schedule.name, "nominal_at": NOON.isoformat()}}
    now = fresh(schedule)
    assert (now.next_at, now.last_at, now.last_job_id) == (NOON + 5 * MINUTE, NOON, job.pk)
    assert run(NOON + 4 * MINUTE).items == 0


def test_it_sleeps_to_the_next_time_and_no_longer_than_five_seconds() -> None:
    assert run(NOON).pause_seconds == 5.0
    schedule = ScheduleFactory(next_at=NOON + 3 * SECOND)
    assert run(NOON + SECOND).pause_seconds == 2.0
    assert run(NOON - MINUTE).pause_seconds == 5.0
    Schedule.objects.filter(pk=schedule.pk).update(enabled=False)
    assert run(NOON + SECOND).pause_seconds == 5.0


@pytest.mark.parametrize("state", [{"enabled": False}, {"retired_at": NOON}])
def test_a_disabled_or_retired_schedule_gets_no_job(state: dict[str, Any]) -> None:
    ScheduleFactory(next_at=NOON, **state)
    assert run(NOON + SECOND).items == 0
    assert not Job.objects.exists()


def test_the_proof_outlives_the_job_and_a_time_that_is_set_back_gets_no_second_one() -> None:
    schedule = ScheduleFactory(interval_seconds=1, cron="", next_at=NOON)
    assert run(NOON + 2 * SECOND).items == 3
    Job.objects.all().erase()
    Schedule.objects.filter(pk=schedule.pk).update(next_at=NOON)
    assert run(NOON + 3 * SECOND).items == 1
    assert ticks(schedule) == [NOON + number * SECOND for number in range(4)]


def test_a_leader_that_dies_in_the_middle_leaves_both_or_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = ScheduleFactory(next_at=NOON)
    with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
        patch.setattr(verbs, "_move", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        run(NOON)
    assert (Job.objects.count(), ticks(schedule), fresh(schedule).next_at) == (0, [], NOON)
    assert run(NOON).items == 1


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_a_storm_of_two_leaders_whose_clocks_differ_makes_one_job_for_each_time() -> None:
    schedule = ScheduleFactory(interval_seconds=1, cron="", next_at=NOON)
    number, ahead = 200, 5
    made = set[tuple[int, str]]()  # all jobs that were ever stored

    def look_and_delete() -> None:
        """Note the jobs, and delete those that were noted at once, as a retention of 0 s does with what has ended."""
        seen = list(Job.objects.values_list("pk", "metadata__schedule__nominal_at"))
        made.update(seen)
        Job.objects.filter(pk__in=[job_id for job_id, _ in seen]).erase()

    def lead(clock: int, step: int) -> int:
        duty, items = EnqueueScheduledJobs(), 0
        for second in range(clock, number, step):
            report = duty.run_once(NOON + second * SECOND)
            assert not report.set_aside
            items += report.items
            look_and_delete()
        return items

    items = together(lambda: lead(0, 1), lambda: lead(ahead, 3))
    items.append(run(NOON + (number - 1) * SECOND).items)  # the row that was locked in the last run
    look_and_delete()
    wanted = [NOON + second * SECOND for second in range(number)]
    assert sum(items) == number
    assert ticks(schedule) == wanted
    assert sorted(nominal for _, nominal in made) == [each.isoformat() for each in wanted]


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_a_row_that_is_locked_is_passed_over_and_delays_no_other(rival: Rival) -> None:
    locked, free = ScheduleFactory(next_at=NOON), ScheduleFactory(next_at=NOON)
    with rival.transaction():
        rival.do(lambda: list(Schedule.objects.select_for_update().filter(pk=locked.pk)))
        report = run(NOON)
        assert (report.items, report.set_aside, report.pause_seconds) == (1, 0, 1.0)
        assert ticks(free) == [NOON]
    assert run(NOON).items == 1


def test_the_fence_of_the_leader_ends_the_run_and_is_no_fault_of_a_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = ScheduleFactory(next_at=NOON)

    @contextlib.contextmanager
    def lost(_: Any) -> Iterator[None]:
        raise LeadershipLost("another worker leads")
        yield

    with monkeypatch.context() as patch:
        patch.setattr(type(Job.objects.database), "atomic", lost)
        with pytest.raises(LeadershipLost):
            run(NOON)
    assert (fresh(schedule).last_error, Job.objects.count()) == ("", 0)


# Downtime


def test_a_stop_over_the_minute_costs_nothing() -> None:
    for missed in ("skip", "once", "all"):
        schedule = ScheduleFactory(next_at=NOON, missed=missed)
        run(NOON + 10 * SECOND)
        run(NOON + 20 * SECOND)
        assert ticks(schedule) == [NOON]


@pytest.mark.long
@pytest.mark.parametrize(("missed", "number"), [("once", 1), ("skip", 1), ("all", 250)])
def test_days_of_downtime_make_as_many_jobs_as_the_policy_says(missed: str, number: int, django_assert_max_num_queries: Any) -> None:
    schedule = ScheduleFactory(next_at=NOON - 3 * DAY, missed=missed, missed_limit=250)
    duty, items = EnqueueScheduledJobs(), 0
    for _ in range(3):
        # For each job three; where one statement cannot write several tables, two more.
        with django_assert_max_num_queries(320 if connection.vendor == "postgresql" else 520):
            report = duty.run_once(NOON + 30 * SECOND)
        items += report.items
        if not report.again:
            break
    assert (items, Job.objects.count(), report.again) == (number, number, False)
    assert ticks(schedule) == [NOON - minute * MINUTE for minute in range(number - 1, -1, -1)]
    assert fresh(schedule).next_at == NOON + MINUTE


def test_a_daily_one_runs_late_once_or_not_at_all() -> None:
    last = NOON.replace(hour=3)
    rows = {missed: ScheduleFactory(cron="0 3 * * *", next_at=last - 3 * DAY, missed=missed) for missed in ("once", "skip", "all")}
    assert run(NOON).items == 5
    assert {missed: ticks(row) for missed, row in rows.items()} == {
        "once": [last],
        "skip": [],
        "all": [last - number * DAY for number in (3, 2, 1, 0)],
    }
    assert {fresh(row).next_at for row in rows.values()} == {last + DAY}


def test_by_default_there_is_one_late_run_at_most() -> None:
    assert Schedule().missed == "once"


def test_times_during_a_pause_are_not_caught_up() -> None:
    schedule = ScheduleFactory(next_at=NOON - 3 * DAY, missed="all", enabled=False)
    answer = verbs.enable_schedule(schedule.name)
    assert answer.next_at > clock.now()
    assert run(clock.now()).items == 0


def test_a_clock_that_was_ahead_for_a_day_and_is_right_again_stops_nothing_and_repeats_nothing() -> None:
    schedule = ScheduleFactory(next_at=NOON + DAY)
    assert run(NOON + DAY).items == 1  # by the wrong clock
    assert run(NOON).items == 0
    assert fresh(schedule).next_at == NOON + MINUTE
    assert run(NOON + MINUTE).items == 1
    Schedule.objects.filter(pk=schedule.pk).update(next_at=NOON + DAY)
    assert run(NOON + DAY).items == 0  # this one has its job
    assert ticks(schedule) == [NOON + MINUTE, NOON + DAY]


@pytest.mark.parametrize("missed", ["all", "skip"])
def test_a_schedule_that_was_planned_by_a_clock_that_was_ahead_is_planned_anew(missed: str) -> None:
    schedule = ScheduleFactory(cron="0 13 * * *", next_at=None, missed=missed)
    run(NOON + 3 * DAY)  # by the wrong clock
    assert fresh(schedule).next_at == NOON + 3 * DAY + timedelta(hours=1)
    run(NOON)
    assert fresh(schedule).next_at == NOON + timedelta(hours=1)
    assert run(NOON + timedelta(hours=1)).items == 1


def test_a_row_without_a_next_time_is_given_one() -> None:
    schedule = ScheduleFactory(next_at=None)
    assert run(NOON).items == 0
    assert fresh(schedule).next_at == NOON + MINUTE


class Clock:
    """Stop the clock until a hook sets how long something took."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


def test_a_run_with_many_slow_jobs_ends_in_time_and_the_next_continues_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = ScheduleFactory.create_batch(12, next_at=NOON)
    clock, enqueue = Clock(), duty_of_schedules.enqueue_scheduled

    def slowly(schedule: Schedule, nominal: datetime | None) -> int:
        clock.now += 1.0
        return enqueue(schedule, nominal)

    monkeypatch.setattr(duty_of_schedules, "time", clock)
    monkeypatch.setattr(duty_of_schedules, "enqueue_scheduled", slowly)
    duty = EnqueueScheduledJobs()
    reports = [duty.run_once(NOON) for _ in range(3)]
    assert [(report.items, report.again) for report in reports] == [(5, True), (5, True), (2, False)]
    assert [ticks(row) for row in rows] == [[NOON]] * 12


# What is asked of the project


asked: list[Any] = []
answers: dict[str, Any] = {}


def answer(*args: Any) -> str | None:
    asked.append(args)
    value = answers["now"]
    return value() if callable(value) else value  # type: ignore[no-any-return]


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Make callables hang until the event is set."""
    monkeypatch.setattr(duty_of_schedules, "CALL_SECONDS", 0.3)
    released = threading.Event()
    asked.clear()
    answers["now"] = lambda: released.wait(20) and "released"
    yield released
    released.set()


@task(unique_key=answer)
def has_key(number: int) -> None:
    """Do nothing."""


@task(target=answer)
def has_target(number: int) -> None:
    """Do nothing."""


@pytest.mark.long
@pytest.mark.parametrize("made", [has_key, has_target])
def test_a_callable_of_a_task_that_hangs_stops_no_other_schedule_and_is_a_problem(made: Any, hanging: threading.Event) -> None:
    first = ScheduleFactory(task=made.module_path, next_at=NOON - SECOND)
    ScheduleFactory.create_batch(3, next_at=NOON)
    duty = EnqueueScheduledJobs()
    report = duty.run_once(NOON)
    assert (report.items, report.set_aside) == (3, 1)
    path = made.module_path
    error = f"TimeoutError: It has not returned after 0.3 s. It was raised by the import, unique_key or target of {path}."
    assert fresh(first).last_error == error
    [problem] = [one for one in problems() if one.code == "failing_schedules"]
    assert repr(first.name) in problem.text

    later = NOON + MINUTE
    assert duty.run_once(later).set_aside == 1
    assert fresh(first).last_error.startswith("TimeoutError: The previous call has not returned yet.")
    assert len(asked) == 1, "it is not called again while it hangs"

    hanging.set()
    answers["now"] = "quick"
    until(lambda: duty.run_once(fresh(first).retry_at or NOON).items > 0)
    job = Job.objects.get(task=path)
    assert (job.unique_key, job.target) == (("quick", "") if made is has_key else ("", "quick"))
    assert fresh(first).last_error == ""


def test_each_job_of_a_schedule_has_its_own_key() -> None:
    numbers = itertools.count()
    answers["now"] = lambda: f"key-{next(numbers)}"
    ScheduleFactory(task=has_key.module_path, cron="", interval_seconds=1, next_at=NOON, missed="all")
    duty, made = EnqueueScheduledJobs(), 0
    while (report := duty.run_once(NOON + 3 * SECOND)).items:
        made += report.items
    assert made == 4
    assert sorted(Job.objects.values_list("unique_key", flat=True)) == [f"key-{number}" for number in range(4)]


def test_a_callable_that_returns_nothing_means_no_key() -> None:
    answers["now"] = None
    ScheduleFactory(task=has_key.module_path, next_at=NOON)
    assert run(NOON).items == 1
    assert Job.objects.get().unique_key == ""


def test_a_definition_that_changes_while_its_task_is_asked_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = ScheduleFactory(task=has_key.module_path, next_at=NOON, args=[1])
    duty, resolve = EnqueueScheduledJobs(), duty_of_schedules.own
    answers["now"] = "key"
    monkeypatch.setattr(duty_of_schedules, "own", lambda row: resolve(_with_other_args(row)))
    report = duty.run_once(NOON)
    assert (report.items, report.set_aside, report.again) == (0, 0, True)
    monkeypatch.undo()
    assert duty.run_once(NOON).items == 1
    assert fresh(schedule).last_error == ""


def _with_other_args(row: Schedule) -> Schedule:
    row.args = [2]
    return row


# What is bad


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        ({"task": "tests.tasks.gone"}, "No registered task has the path 'tests.tasks.gone'"),
        ({"args": {"a": 1}}, "args is a dict; it must be a list"),
        ({"kwargs": [1]}, "kwargs is a list; it must be an object"),
        ({"kwargs": {"password": "hunter2"}}, "The arguments do not fit the task: got an unexpected keyword argument 'password'"),
        ({"time_zone": "Mars/Base"}, "The time zone 'Mars/Base' is not known here"),
        ({"cron": "0 0 30 2 *"}, "Bad day-of-month"),
        ({"cron": "nonsense"}, "Wrong number of fields"),
        ({"target": "a/b"}, "target is 'a/b'"),
        ({"queue": "q" * 200, "priority": 3000}, "priority"),
    ],
)
def test_a_bad_row_is_set_aside_with_its_reason_delays_no_other_and_is_retried(
    bad: dict[str, Any], text: str, caplog: pytest.LogCaptureFixture
) -> None:
    wrong, right = ScheduleFactory(next_at=NOON - MINUTE, **bad), ScheduleFactory(next_at=NOON)
    report = run(NOON)
    assert (report.items, report.set_aside) == (1, 1)
    assert ticks(right) == [NOON]
    assert text in fresh(wrong).last_error
    assert "hunter2" not in fresh(wrong).last_error + caplog.text
    assert f"Schedule {wrong.name} is set aside for now" in caplog.text
    caplog.clear()
    assert run(NOON + 10 * SECOND).set_aside == 0  # not yet
    assert run(NOON + 31 * SECOND).set_aside == 1
    assert caplog.text == ""  # it is no news
    good = {"task": "tests.tasks.add", "args": [1], "kwargs": {}, "time_zone": "UTC", "cron": "* * * * *", "target": "", "priority": 0}
    Schedule.objects.filter(pk=wrong.pk).update(**good)
    # Another timing counts from now on.
    assert run(NOON + 62 * SECOND).items == (1 if bad.keys() & {"cron", "time_zone"} else 2)
    assert (fresh(wrong).last_error, fresh(wrong).retry_at) == ("", None)


def test_one_whose_enqueue_ends_its_process_is_set_aside_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong, right = ScheduleFactory(next_at=NOON - MINUTE), ScheduleFactory(next_at=NOON)
    tick = verbs.tick

    def leave(schedule_id: int, *args: Any) -> Any:
        if schedule_id == wrong.pk:
            raise SystemExit(3)
        return tick(schedule_id, *args)

    monkeypatch.setattr(verbs, "tick", leave)
    report = run(NOON)
    assert (report.items, report.set_aside, ticks(right)) == (1, 1, [NOON])
    assert "SystemExit" in fresh(wrong).last_error


@pytest.mark.parametrize("when", ["it is due", "its timing has changed", "it is disabled"])
def test_a_row_that_cannot_be_written_delays_no_other_and_is_skipped_for_a_while(when: str, caplog: pytest.LogCaptureFixture) -> None:
    bad = ScheduleFactory(name="bad", next_at=NOON - MINUTE, enabled=when != "it is disabled")
    if when == "it is due":
        plans.replan(bad.pk, NOON - DAY)
    right = ScheduleFactory(next_at=NOON)
    unneeded = ScheduleFactory(next_at=NOON, enabled=False)
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            trigger = "BEFORE UPDATE ON jobqueue_schedule WHEN new.name = 'bad' BEGIN SELECT RAISE(ABORT, 'refused'); END"
            cursor.execute(f"CREATE TRIGGER refuse_bad {trigger}")
        else:
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
            cursor.execute("ALTER TABLE jobqueue_schedule ADD CONSTRAINT refuse_bad CHECK (name <> 'bad') NOT VALID")
    duty = EnqueueScheduledJobs()
    for number in range(2):
        duty._replan_at = 0.0
        report = duty.run_once(NOON + (1 + 60 * number) * SECOND)
        assert report.set_aside == (when == "it is due" and number == 0)
    assert (ticks(right)[0], fresh(unneeded).next_at, ticks(bad)) == (NOON, None, [])
    told = [record.message for record in caplog.records if "bad" in record.message or str(bad.pk) in record.message]
    assert len(told) == 1, told


@pytest.mark.long
def test_many_bad_ones_keep_no_good_one_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duty_of_schedules, "BUDGET_SECONDS", 600.0)
    ScheduleFactory.create_batch(110, next_at=NOON - MINUTE, task="tests.tasks.gone")
    right = ScheduleFactory(next_at=NOON)
    assert run(NOON).again
    assert run(NOON).items == 1
    assert ticks(right) == [NOON]


def test_a_live_job_with_the_tasks_unique_key_counts_as_the_job_of_the_tick() -> None:
    live = JobFactory(task="tests.tasks.add", unique_key="one")
    schedule = ScheduleFactory(task="tests.tasks.add_once", next_at=NOON)
    run(NOON)
    assert (Job.objects.count(), fresh(schedule).last_job_id) == (1, live.pk)


def test_target_and_tenant_of_the_schedule_go_along() -> None:
    ScheduleFactory(next_at=NOON, target="customer:7", tenant="acme")
    run(NOON)
    assert Job.objects.values_list("target", "tenant").get() == ("customer:7", "acme")


# Old ticks


def test_ticks_are_kept_until_no_clock_can_repeat_them() -> None:
    schedule = ScheduleFactory(cron="0 0 * * *", next_at=NOON + DAY, last_at=NOON - DAY)
    idle = ScheduleFactory(enabled=False, last_at=NOON - 100 * DAY)
    ages = [0, 1, 2, 3.9, 4.1, 30]
    for days in ages:
        ScheduleTick.objects.create(schedule=schedule, nominal_at=NOON - days * DAY)
    ScheduleTick.objects.create(schedule=idle, nominal_at=NOON - 100 * DAY)  # its last one, however old
    run(NOON)
    assert ticks(schedule) == [NOON - days * DAY for days in (3.9, 2, 1, 0)]
    assert len(ticks(idle)) == 1
