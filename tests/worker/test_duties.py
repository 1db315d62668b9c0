"""The thread that contends for duties, and the threads that do them; real ones, with leases short enough to wait for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import OperationalError, transaction
from django.utils import timezone

from jobqueue.duties.base import Duty, FunctionDuty, Report
from jobqueue.models import BackgroundJobLease, Job
from jobqueue.worker.duties.contender import Duties
from tests.factories import JobFactory
from tests.rivals import Rival

pytestmark = [pytest.mark.long, pytest.mark.django_db(transaction=True)]
PATIENCE_SECONDS = 20.0


class Told(Duty):
    """A duty that a test steers."""

    name = "told"
    interval_seconds = 0.02
    releases_jobs = True

    def __init__(self, act: Callable[[], Report]) -> None:
        self.act = act
        self.runs = 0
        self.heard = 0

    def notify(self) -> None:
        self.heard += 1

    def run_once(self, now: datetime) -> Report:
        assert now.tzinfo is not None
        self.runs += 1
        return self.act()


class Fleet:
    """Run the duties of several worker processes in this one."""

    def __init__(self) -> None:
        self.members: list[Duties] = []
        self.errors: list[BaseException] = []
        self.moved = 0

    def start(self, worker_id: str, *duties: Duty) -> Duties:
        makers = {duty.name: (lambda duty=duty: duty) for duty in duties}
        one = Duties(
            worker_id, lambda not_before: makers, place=f"host:{worker_id}", heartbeat_seconds=0.1, released=self._move, on_error=self._fail
        )
        self.members.append(one)
        one.start()
        return one

    def _move(self) -> None:
        self.moved += 1

    def _fail(self, service: object, error: BaseException, failures: int) -> None:
        self.errors.append(error)

    def stop(self) -> None:
        for one in self.members:
            one.stop()
        for one in self.members:
            assert one.join(PATIENCE_SECONDS)
            assert not one.lingering


@pytest.fixture
def fleet(settings: Any) -> Iterator[Fleet]:
    settings.JOBQUEUE = {"DUTY_LEASE_SECONDS": 1.0, "DUTY_HEARTBEAT_SECONDS": 0.2}
    made = Fleet()
    yield made
    made.stop()


def wait_until(condition: Callable[[], object], what: str) -> None:
    deadline, pause = time.monotonic() + PATIENCE_SECONDS, threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"It did not come about that {what}."
        pause.wait(0.01)


def row(name: str = "told") -> BackgroundJobLease:
    return BackgroundJobLease.objects.get(pk=name)


def told(name: str = "told") -> dict[str, Any]:
    return BackgroundJobLease.objects.filter(pk=name).values_list("metadata", flat=True).first() or {}


def holder(name: str = "told") -> str:
    return BackgroundJobLease.objects.filter(pk=name).values_list("held_by_worker_id", flat=True).first() or ""


def test_one_of_two_does_the_duty_and_the_other_takes_over_when_it_ends_in_order(fleet: Fleet) -> None:
    one, two = Told(lambda: Report(1)), Told(lambda: Report(1))
    first = fleet.start("worker-1", one)
    wait_until(lambda: one.runs > 2, "the first does it")
    second = fleet.start("worker-2", two)
    wait_until(lambda: second.last_good_turn > second.turn_began if second.turn_began else True, "the second has polled")
    assert (holder(), two.runs) == ("worker-1", 0)
    first.stop()
    assert first.join(PATIENCE_SECONDS)
    done = one.runs
    wait_until(lambda: two.runs, "the second takes over")
    assert (holder(), one.runs) == ("worker-2", done)
    assert fleet.moved >= 3, "the dispatcher is notified of the jobs that duties move"


def test_the_row_shows_what_the_duty_does(fleet: Fleet) -> None:
    calls = iter([Report(3, set_aside=1), Report(4), *[Report()] * 100_000])
    fleet.start("worker-1", Told(lambda: next(calls)))
    wait_until(lambda: told().get("runs", 0) > 2, "the row shows three runs")
    found = told()
    assert (found["items"], found["set_aside"], found["last_items"], found.get("errors", 0)) == (7, 1, 0, 0)
    assert (found["process"], found["interval_seconds"], found["strategy"]) == ("host:worker-1", 0.02, "lease")
    assert found["last_duration_seconds"] >= 0
    assert datetime.fromisoformat(found["last_run_at"]).tzinfo


def test_a_duty_that_fails_is_counted_shown_and_tried_again_and_stops_no_other(fleet: Fleet) -> None:
    def fail() -> Report:
        raise LookupError("no such luck")

    bad, good = Told(fail), Told(lambda: Report(1))
    good.name = "good"
    fleet.start("worker-1", bad, good)
    wait_until(lambda: bad.runs > 1 and good.runs > 5, "both continue")
    wait_until(lambda: told().get("errors", 0) > 1, "the row shows it")
    assert row().metadata["last_error"] == "LookupError: no such luck"
    assert row().metadata["failures_in_a_row"] > 1
    assert isinstance(fleet.errors[0], LookupError)


def test_a_duty_that_hangs_stops_no_other_and_its_lease_goes_to_another_worker(fleet: Fleet) -> None:
    end = threading.Event()
    hanging, good, other = Told(lambda: (end.wait(PATIENCE_SECONDS), Report())[1]), Told(lambda: Report(1)), Told(lambda: Report(1))
    hanging.longest_run_seconds = 0.2
    good.name = "good"
    try:
        fleet.start("worker-1", hanging, good)
        wait_until(lambda: hanging.runs, "it hangs")
        fleet.start("worker-2", other)
        wait_until(lambda: other.runs, "the other leads it")
        assert holder() == "worker-2"
        assert holder("good") == "worker-1"
        before = good.runs
        wait_until(lambda: good.runs > before, "the good one continues")
        assert row().metadata["given_up"] == 1
    finally:
        end.set()


def test_a_hanging_duty_that_returns_writes_nothing_more(fleet: Fleet) -> None:
    end, lost = threading.Event(), []

    def hang_and_write() -> Report:
        end.wait(PATIENCE_SECONDS)
        try:
            with Job.objects.database.atomic():
                JobFactory()
        except Exception as error:
            lost.append(type(error).__name__)
            raise
        return Report(1)

    hanging, other = Told(hang_and_write), Told(lambda: Report(1))
    hanging.longest_run_seconds = 0.2
    try:
        fleet.start("worker-1", hanging)
        wait_until(lambda: hanging.runs, "it hangs")
        fleet.start("worker-2", other)
        wait_until(lambda: other.runs, "the other leads it")
    finally:
        end.set()
    wait_until(lambda: lost, "the worker leads again")
    assert lost == ["LeadershipLost"]
    assert not Job.objects.exists()


def test_a_leader_that_cannot_renew_stops_before_another_begins(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[tuple[float, str]] = []
    one = Told(lambda: (log.append((time.monotonic(), "one")), Report(1))[1])
    two = Told(lambda: (log.append((time.monotonic(), "two")), Report(1))[1])
    first = fleet.start("worker-1", one)
    wait_until(lambda: one.runs > 2, "the first leads")

    def fail(metadata: object) -> None:
        raise OperationalError("the answer never came")

    monkeypatch.setattr(first._leadership, "renew", fail)
    fleet.start("worker-2", two)
    wait_until(lambda: two.runs > 2, "the second leads")
    who = [name for _, name in sorted(log)]
    assert who == sorted(who), "only one worker acts at a time"
    wait_until(lambda: not first.runners, "the first has noticed")


def test_a_duty_that_an_operator_released_goes_to_the_first_worker_that_checks_and_the_old_leader_stops(fleet: Fleet) -> None:
    duty = Told(lambda: Report(1))
    one = fleet.start("worker-1", duty)
    wait_until(lambda: duty.runs, "it is led")
    began = row().lease_acquired_at
    BackgroundJobLease.objects.release("told")
    one.notify()
    wait_until(lambda: row().lease_acquired_at not in (None, began), "a new term has begun")
    wait_until(lambda: duty.runs > 5, "it continues")


def test_a_duty_that_rotates_makes_room_for_another(fleet: Fleet) -> None:
    one, two = Told(lambda: Report(1)), Told(lambda: Report(1))
    one.rotate_after_seconds = two.rotate_after_seconds = 0.3
    fleet.start("worker-1", one)
    wait_until(lambda: one.runs, "the first leads")
    fleet.start("worker-2", two)
    wait_until(lambda: two.runs, "the second leads")
    before = one.runs
    wait_until(lambda: one.runs > before, "the first leads again")


def test_every_worker_runs_duties_of_everyone_without_a_row(fleet: Fleet) -> None:
    one, two = Told(lambda: Report(1)), Told(lambda: Report(1))
    one.strategy = two.strategy = "everyone"
    fleet.start("worker-1", one)
    fleet.start("worker-2", two)
    wait_until(lambda: one.runs > 1 and two.runs > 1, "both do it")
    assert not BackgroundJobLease.objects.exists()


def test_a_worker_that_cannot_do_a_duty_never_leads_it(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    unable, able = Told(lambda: Report(1)), Told(lambda: Report(1))
    monkeypatch.setattr(unable, "can_run", lambda: False)
    fleet.start("worker-1", unable)
    fleet.start("worker-2", able)
    wait_until(lambda: able.runs > 1, "the one that can does it")
    assert not unable.runs


def test_more_to_do_is_done_at_once_and_a_report_may_name_the_pause(fleet: Fleet) -> None:
    reports = iter([Report(1, again=True)] * 5 + [Report(pause_seconds=0.01)] * 5)
    duty = Told(lambda: next(reports, Report(pause_seconds=PATIENCE_SECONDS)))
    duty.interval_seconds = 1000.0
    fleet.start("worker-1", duty)
    wait_until(lambda: duty.runs == 11, "all reports were made")


def test_a_notification_of_new_work_wakes_the_duty(fleet: Fleet) -> None:
    duty = Told(lambda: Report(pause_seconds=1000.0))
    one = fleet.start("worker-1", duty)
    wait_until(lambda: duty.runs == 1, "it has run once")
    one.notify("another")
    one.notify("told")
    wait_until(lambda: duty.runs == 2, "it runs again")
    assert duty.heard == 1


def test_a_function_counts_as_many_items_as_it_returns(fleet: Fleet) -> None:
    answers = iter([3, None, True, "text", Report(4)])
    fleet.start("worker-1", FunctionDuty("told", lambda: next(answers, 0), 0.01, "lease", None))
    wait_until(lambda: told().get("runs", 0) > 5, "it was called")
    assert row().metadata["items"] == 7


def test_a_projects_duty_that_cannot_reach_its_own_database_prevents_no_recovery(fleet: Fleet) -> None:
    def fail() -> Report:
        raise OperationalError("connection refused")

    bad = FunctionDuty("bad", fail, 0.01, "lease", None)
    one = fleet.start("worker-1", bad)
    wait_until(lambda: told("bad").get("errors", 0) > 1, "it has failed")
    assert one.no_sweep_before == 0.0
    own = Told(fail)
    two = fleet.start("worker-2", own)
    wait_until(lambda: two.no_sweep_before > 0, "an outage during a duty of jobqueue counts")


@pytest.mark.parametrize("name", ["huge", "negative", "nan", "nan report", "huge report", "none"])
def test_no_result_of_a_duty_affects_another_duty(fleet: Fleet, name: str) -> None:
    answers: dict[str, Any] = {
        "huge": 10**5000,
        "negative": -5,
        "nan": float("nan"),
        "nan report": Report(items=float("nan")),  # type: ignore[arg-type]
        "huge report": Report(items=10**400),
        "none": Report(set_aside=None),  # type: ignore[arg-type]
    }
    odd = FunctionDuty("odd", lambda: answers[name], 0.01, "lease", None)
    good = Told(lambda: Report(1))
    fleet.start("worker-1", odd, good)
    wait_until(lambda: told("odd").get("runs", 0) > 3, "it continues")
    began = row().lease_acquired_at
    wait_until(lambda: told().get("runs", 0) > 60, "the other continues for longer than a lease")
    assert row().lease_acquired_at == began
    assert 0 <= told("odd")["items"] <= 2**53


@pytest.mark.parametrize("pause", [float("nan"), float("inf"), -1.0, "soon"])
def test_a_pause_of_none_is_the_duty_s_interval(fleet: Fleet, pause: Any) -> None:
    duty = Told(lambda: Report(pause_seconds=pause))
    fleet.start("worker-1", duty)
    wait_until(lambda: duty.runs > 3, "it continues")


def test_a_report_that_cannot_be_written_does_not_prevent_renewals(fleet: Fleet) -> None:
    duty = Told(lambda: Report(1))
    one = fleet.start("worker-1", duty)
    wait_until(lambda: duty.runs, "it is led")
    began = row().lease_acquired_at
    one.runners[0].metadata = {"items": float("nan")}
    duty.interval_seconds = 1000.0
    renewed = row().heartbeat_at
    wait_until(
        lambda: (row().heartbeat_at or began) - (renewed or began) > timedelta(seconds=1.5), "it is renewed longer than a lease lasts"
    )
    assert row().lease_acquired_at == began


def test_a_transaction_that_a_duty_leaves_open_is_undone_and_counts_as_an_error(fleet: Fleet) -> None:
    def leave_open() -> None:
        transaction.atomic().__enter__()
        JobFactory()

    fleet.start("worker-1", FunctionDuty("told", leave_open, 0.01, "lease", None))
    wait_until(lambda: told().get("errors", 0) > 1, "it is counted")
    assert "left a transaction open" in told()["last_error"]
    assert not Job.objects.exists()
    assert "runs" not in told()


def test_settings_that_a_duty_activates_are_reset(fleet: Fleet) -> None:
    seen = []

    def activate() -> None:
        seen.append(timezone.get_current_timezone_name())
        timezone.activate("Asia/Tokyo")

    fleet.start("worker-1", FunctionDuty("told", activate, 0.01, "lease", None))
    wait_until(lambda: len(seen) > 2, "it has run")
    assert "Asia/Tokyo" not in seen


def test_when_a_worker_ends_the_rows_have_no_leader(fleet: Fleet) -> None:
    duty = Told(lambda: Report(1))
    one = fleet.start("worker-1", duty)
    wait_until(lambda: duty.runs > 1, "it leads, and has completed a run")
    one.stop()
    assert one.join(PATIENCE_SECONDS)
    found = row()
    assert (found.held_by_worker_id, found.lease_acquired_at, found.heartbeat_at) == ("", None, None)
    assert found.metadata["runs"] >= 1


# The short duties share a thread


class Short(Told):
    """A short duty, which remembers in which threads it ran."""

    is_short = True

    def __init__(self, name: str, act: Callable[[], Report] = Report) -> None:
        super().__init__(act)
        self.name = name
        self.threads: list[threading.Thread] = []

    def run_once(self, now: datetime) -> Report:
        self.threads.append(threading.current_thread())
        return super().run_once(now)


def test_short_duties_share_a_thread_and_a_long_one_has_its_own(fleet: Fleet) -> None:
    one, two, long = Short("one"), Short("two"), Told(Report)
    fleet.start("worker-1", one, two, long)
    wait_until(lambda: one.runs > 2 and two.runs > 2 and long.runs > 2, "all run")
    assert len({*one.threads, *two.threads}) == 1
    names = {thread.name for thread in threading.enumerate() if thread.name.startswith(("jobqueue-duty", "jobqueue-short"))}
    assert names == {"jobqueue-short duties", f"jobqueue-duty {long.name}"}


def test_short_duties_can_have_different_leaders(fleet: Fleet) -> None:
    first, second = Short("first"), Short("second")
    fleet.start("worker-1", first)
    wait_until(lambda: first.runs, "the first is led")
    fleet.start("worker-2", Short("first"), second)
    wait_until(lambda: second.runs, "the second is led")
    assert (holder("first"), holder("second")) == ("worker-1", "worker-2")


def test_while_a_short_duty_blocks_the_others_go_on_in_a_new_thread_and_it_joins_them_afterwards(fleet: Fleet) -> None:
    end, running, together = threading.Event(), threading.Lock(), []

    def block() -> Report:
        if not running.acquire(blocking=False):
            together.append(1)
            return Report()
        try:
            end.wait(PATIENCE_SECONDS)
        finally:
            running.release()
        return Report()

    blocked, good = Short("blocked", block), Short("good")
    try:
        fleet.start("worker-1", blocked, good)
        wait_until(lambda: blocked.runs, "it blocks")
        wait_until(lambda: good.runs > 5 and good.threads[-1] is not blocked.threads[0], "the other continues")
        assert blocked.runs == 1
        assert (holder("blocked"), holder("good")) == ("worker-1", "worker-1"), "it is still in time"
    finally:
        end.set()
    wait_until(lambda: blocked.runs > 3, "it runs again")
    assert blocked.threads[-1] is good.threads[-1]
    assert not blocked.threads[0].is_alive()
    assert not together


def test_a_short_duty_that_hangs_is_given_up_and_the_others_go_on(fleet: Fleet) -> None:
    end = threading.Event()
    hanging, good, other = Short("told", lambda: (end.wait(PATIENCE_SECONDS), Report())[1]), Short("good"), Short("told")
    hanging.longest_run_seconds = 0.2
    try:
        fleet.start("worker-1", hanging, good)
        wait_until(lambda: hanging.runs, "it hangs")
        fleet.start("worker-2", other)
        wait_until(lambda: other.runs, "the other worker leads it")
        before = good.runs
        wait_until(lambda: good.runs > before, "the good one continues")
        assert (holder(), holder("good"), row().metadata["given_up"]) == ("worker-2", "worker-1", 1)
    finally:
        end.set()


@pytest.mark.postgresql
def test_the_statement_of_a_short_duty_that_blocks_is_canceled_and_the_others_go_on(fleet: Fleet, rival: Rival) -> None:
    job = JobFactory()

    def lock() -> Report:
        Job.objects.select_for_update().filter(pk=job.pk).update(priority=1)
        return Report()

    blocked, good = Short("blocked", lock), Short("good")
    blocked.longest_run_seconds = 0.3
    with rival.locking(job):
        fleet.start("worker-1", blocked, good)
        wait_until(lambda: fleet.errors, "its statement is canceled")
        before = good.runs
        wait_until(lambda: good.runs > before, "the other continues")
    wait_until(lambda: told("blocked").get("runs"), "it completes a run when the lock is free")


def test_a_short_duty_that_fails_has_a_back_off_of_its_own(fleet: Fleet) -> None:
    def fail() -> Report:
        raise LookupError("no such luck")

    bad, good = Short("bad", fail), Short("good")
    fleet.start("worker-1", bad, good)
    wait_until(lambda: bad.runs > 2 and good.runs > 3 * bad.runs, "the good one runs at its interval")
    assert {type(error) for error in fleet.errors} == {LookupError}
