"""The queries that the hint of the recovery duty saves the other duties, and that each duty queries if the hint is not sufficient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from jobqueue.clock import now as this_moment
from jobqueue.duties.base import Duty
from jobqueue.duties.builtin import builtin
from jobqueue.lifecycle import glance as glances
from jobqueue.lifecycle.glance import Glances
from jobqueue.models import BackgroundJobLease, Job, Schedule, WebhookDelivery
from tests.factories import DeliveryFactory, JobFactory, ScheduleFactory, ahead

pytestmark = pytest.mark.django_db

SWEEP = "expire_stale_running_jobs"
ASKING = {"enqueue_scheduled_jobs", "release_parked_targets", "deliver_webhooks", "promote_due_jobs"}
# Each with what is to be done, and which duty is to see it.
WORK: dict[str, tuple[Callable[[], object], str]] = {
    "due": (lambda: JobFactory(due=True), "promote_due_jobs"),
    "parked": (lambda: JobFactory(waiting_for_target=True), "release_parked_targets"),
    "waits": (lambda: JobFactory(waiting_for_children=True), "promote_due_jobs"),
    "expired": (lambda: JobFactory(expired=True), SWEEP),
}


class Clock:
    """Advance only on request."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(glances, "time", clock)
    return clock


@pytest.fixture
def duties() -> dict[str, Duty]:
    """Make the duties of one process, the first runs behind them."""
    BackgroundJobLease.objects.create(job_name=SWEEP)
    made = {name: make() for name, make in builtin(lambda: None, lambda lost: None, lambda: 0.0).items()}
    for name in ASKING:
        run(made[name])
    return made


def run(duty: Duty) -> Any:
    return duty.run_once(this_moment())


def statements(duty: Duty) -> int:
    with CaptureQueriesContext(connection) as queries:
        run(duty)
    return len(queries.captured_queries)


def asked(duties: dict[str, Duty]) -> set[str]:
    """Return the duties that query the database, except those that always do: without notifications, due jobs are polled."""
    untold = set() if connection.vendor == "postgresql" else {"promote_due_jobs"}
    return {name for name in ASKING - untold if statements(duties[name])}


@pytest.mark.session
def test_one_statement_of_the_sweep_spares_the_other_duties_theirs_for_a_second(duties: dict[str, Duty], clock: Clock) -> None:
    assert "release_parked_targets" in asked(duties)
    assert statements(duties[SWEEP]) == 1
    clock.now += 1.0
    assert asked(duties) == set()
    clock.now += 1.5
    assert "release_parked_targets" in asked(duties), "the sweep is late: each asks for itself"


@pytest.mark.parametrize("kind", sorted(WORK))
def test_what_a_glance_sees_is_done_by_whose_duty_it_is(duties: dict[str, Duty], kind: str) -> None:
    make, name = WORK[kind]
    make()
    sweep = run(duties[SWEEP])
    report = sweep if name == SWEEP else run(duties[name])
    assert report.items >= 1 or report.again


def test_a_delivery_is_seen_though_nothing_was_to_be_sent_for_long(duties: dict[str, Duty]) -> None:
    run(duties[SWEEP])
    assert statements(duties["deliver_webhooks"]) == 0
    DeliveryFactory(next_attempt_at=ahead(hours=1))
    run(duties[SWEEP])
    assert statements(duties["deliver_webhooks"]) == 1


@pytest.mark.postgresql
def test_a_job_that_is_soon_due_is_waited_for_to_its_time(duties: dict[str, Duty]) -> None:
    JobFactory(scheduled=True, run_at=ahead(seconds=0.95))
    run(duties[SWEEP])
    rest = run(duties["promote_due_jobs"]).pause_seconds
    assert 0.05 < rest <= 0.85, "a little earlier, to poll"
    JobFactory(scheduled=True, run_at=ahead(seconds=0.05))
    run(duties[SWEEP])
    report = run(duties["promote_due_jobs"])
    assert report.items or 0 <= report.pause_seconds <= 0.05


@pytest.mark.postgresql
@pytest.mark.session
def test_whoever_was_told_of_a_due_job_asks_whatever_was_seen_before(duties: dict[str, Duty]) -> None:
    run(duties[SWEEP])
    JobFactory(due=True)
    assert run(duties["promote_due_jobs"]).items == 0
    duties["promote_due_jobs"].hear()
    assert run(duties["promote_due_jobs"]).items == 1


def test_a_schedule_that_was_told_of_is_looked_for_whatever_was_seen_before(duties: dict[str, Duty]) -> None:
    run(duties[SWEEP])
    schedule = ScheduleFactory(next_at=this_moment())
    assert statements(duties["enqueue_scheduled_jobs"]) == 0
    duties["enqueue_scheduled_jobs"].hear()
    run(duties["enqueue_scheduled_jobs"])
    before, schedule.next_at = schedule.next_at, Schedule.objects.get().next_at
    assert schedule.next_at > before
    run(duties[SWEEP])
    assert statements(duties["enqueue_scheduled_jobs"]) > 0, "there is one"


def test_without_the_row_of_the_sweep_nothing_is_known(duties: dict[str, Duty]) -> None:
    seen = Glances()
    assert seen.look(SWEEP) is not None
    BackgroundJobLease.objects.all().delete()
    assert (seen.look(SWEEP), seen.fresh) == (None, None)
    JobFactory(expired=True)
    assert run(duties[SWEEP]).items == 1


def test_a_delivery_that_is_seen_for_the_first_time_wakes_whose_duty_it_is(duties: dict[str, Duty]) -> None:
    woken: list[str] = []
    duties["deliver_webhooks"].wake = lambda: woken.append("deliver_webhooks")
    run(duties[SWEEP])
    assert woken == []
    for _ in range(2):
        DeliveryFactory(next_attempt_at=ahead(hours=1))
        run(duties[SWEEP])
        run(duties[SWEEP])
        assert woken == ["deliver_webhooks"], "it knows its rhythm itself while there is something"
        WebhookDelivery.objects.all().delete()
        run(duties[SWEEP])
        woken.clear()


def test_a_queued_job_that_is_seen_for_the_first_time_is_told_of() -> None:
    BackgroundJobLease.objects.create(job_name=SWEEP)
    told: list[str] = []
    seen = Glances()
    seen.tell_of_queued = lambda: told.append("queued")
    seen.look(SWEEP)
    JobFactory(running=True)
    seen.look(SWEEP)
    assert told == []
    JobFactory()
    seen.look(SWEEP)
    seen.look(SWEEP)
    assert told == ["queued"]
    Job.objects.filter(status="QUEUED").delete()
    seen.look(SWEEP)
    JobFactory()
    seen.look(SWEEP)
    assert told == ["queued"] * 2
