"""Why a job waits: the gate, the other job, and what an operator can do."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from jobqueue.clock import now as this_moment
from jobqueue.exceptions import InvalidOption, JobDoesNotExist
from jobqueue.insight.why import why_waiting
from jobqueue.insight.why_words import about, clock
from jobqueue.lifecycle import control
from jobqueue.lifecycle.queues import limit_queue, pause_queue
from jobqueue.models import Job
from tests import tasks
from tests.factories import JobFactory, WorkerFactory

pytestmark = pytest.mark.django_db
SEVEN = {"target": "customer:7"}


def ago(**delta: float) -> datetime:
    return this_moment() - timedelta(**delta)


def told(when: datetime) -> str:
    return clock(when, this_moment())


def why(job: Any) -> tuple[str, str, int | None]:
    found = why_waiting(job)
    assert found is not None
    return found.gate, found.text, found.job_id


@pytest.mark.parametrize("trait", ["running", "success", "error", "canceled"])
def test_a_job_that_runs_or_has_ended_waits_for_nothing(trait: str) -> None:
    assert why_waiting(JobFactory(**{trait: True})) is None


def test_a_free_job_waits_for_the_next_worker() -> None:
    WorkerFactory()
    assert why(JobFactory()) == ("free", "Nothing blocks it: the next free worker claims it.", None)


def test_busy_slots_are_named() -> None:
    worker = WorkerFactory(slots=8, running=0)  # its row is up to 10 s old
    JobFactory.create_batch(8, running=True, lease_owner=str(worker.pk))
    gate, text, _ = why(JobFactory())
    assert (gate, "all 8 slots of the workers for queue 'default' were busy" in text) == ("free", True)


def test_a_job_is_read_again_and_can_be_named_by_its_number_or_by_the_result_of_its_enqueue() -> None:
    WorkerFactory()
    stale = JobFactory()
    control.pause(stale.pk)
    assert why(stale)[0] == why(stale.pk)[0] == "paused"
    assert why(tasks.add.enqueue(1))[0] == "free"
    with pytest.raises(JobDoesNotExist, match="There is no job 0"):
        why_waiting(0)


@pytest.mark.parametrize("job", [None, True, "seven", "9" * 30, object(), -1])
def test_an_invalid_job_is_refused(job: Any) -> None:
    with pytest.raises(InvalidOption, match="it must be a job, its number or public id, or the result of its enqueue"):
        why_waiting(job)


# Queues


def test_a_paused_queue_comes_first() -> None:
    pause_queue("mail")
    JobFactory(**SEVEN, running=True)
    gate, text, job_id = why(JobFactory(**SEVEN, queue="mail"))
    assert (gate, job_id) == ("paused_queue", None)
    assert text.startswith("Its queue 'mail' is paused (last changed at ")
    assert text.endswith("): resume the queue.")


# Targets


@pytest.mark.parametrize("waits", ["queued", "waiting_for_target"])
@pytest.mark.parametrize(
    ("trait", "values", "says"),
    [
        (
            "running",
            {"started_at": ago(minutes=5)},
            "holds {target}: it is RUNNING since {five}; the next job of the line starts when it ends; cancel it",
        ),
        ("running", {}, "holds {target}: it is RUNNING; the next job of the line starts"),
        ("cancel_requested_", {}, "holds {target}: it is RUNNING and was asked to stop, to be canceled."),
        ("expired", {"lease_expires_at": ago(minutes=5)}, "holds {target}: its worker was lost: its lease ran out at {five}"),
        (
            "error",
            {"holds_target": True, "finished_at": ago(minutes=5)},
            "holds {target}: it is ERROR since {five}; resume, cancel or delete it.",
        ),
        ("error", {"finished_at": ago(minutes=5)}, "blocks {target}: it is ERROR since {five}; resume, cancel or delete it."),
        (
            "paused",
            {"holds_target": True, "history": [{"outcome": "PAUSED", "finished_at": ago(minutes=5).isoformat()}]},
            "holds {target}: it is PAUSED since {five}; resume, cancel or delete it.",
        ),
        (
            "paused",
            {"holds_target": True, "history": [{"outcome": "RETRY", "finished_at": ago(minutes=5).isoformat()}]},
            "holds {target}: it is PAUSED; resume, cancel or delete it.",
        ),
        ("paused", {}, "blocks {target}: it is PAUSED; resume, cancel or delete it."),
        (
            "waiting_for_retry",
            {"holds_target": True, "run_at": ago(hours=-5)},
            "holds {target}: it waits for a retry until {ahead}; cancel it",
        ),
        ("queued", {"holds_target": True}, "holds {target}: it is QUEUED, and is claimed first."),
    ],
)
def test_the_job_that_holds_or_blocks_the_target_is_named(trait: str, values: dict[str, Any], says: str, waits: str) -> None:
    other = JobFactory(**SEVEN, task="shop.tasks.sync", **{trait: True}, **values)
    gate, text, job_id = why(JobFactory(**SEVEN, **{waits: True}, priority=50))
    assert (gate, job_id) == ("target", other.pk)
    five, ahead = told(values.get("started_at", values.get("finished_at", values.get("lease_expires_at", ago(minutes=5))))), ""
    if trait == "paused" and values:
        five = told(datetime.fromisoformat(values["history"][0]["finished_at"]))
    if trait == "waiting_for_retry":
        ahead = told(values["run_at"])
    said = says.format(target="target 'customer:7'", five=five, ahead=ahead)
    assert text.startswith(f"Job {other.pk} (shop.tasks.sync) {said}")


def test_a_holder_that_waits_to_run_again_shows_the_job_that_blocks_it() -> None:
    holder, blocker = JobFactory(**SEVEN, holds_target=True), JobFactory(**SEVEN, paused=True)
    assert why(holder)[::2] == ("target", blocker.pk)
    assert why(JobFactory(**SEVEN))[2] == blocker.pk
    control.cancel(blocker.pk)
    WorkerFactory()
    assert why(holder)[0] == "free"


def test_a_holder_that_waits_to_run_again_goes_before_any_priority() -> None:
    WorkerFactory()
    holder, better = JobFactory(**SEVEN, holds_target=True), JobFactory(**SEVEN, priority=50)
    assert (why(holder)[0], why(better)[2]) == ("free", holder.pk)


@pytest.mark.parametrize("waits", ["queued", "waiting_for_target"])
def test_the_better_one_in_line_is_named_by_priority_and_then_by_age(waits: str) -> None:
    WorkerFactory()
    first, last = JobFactory(**SEVEN, task="shop.tasks.sync"), JobFactory(**SEVEN, **{waits: True})
    text = "is before it in the line of target 'customer:7', because it is older: it is QUEUED, and is claimed first."
    assert why(last) == ("target", f"Job {first.pk} (shop.tasks.sync) {text}", first.pk)
    best = JobFactory(**SEVEN, priority=5)
    assert (why(last)[2], why(first)[2]) == (best.pk, best.pk)
    assert "because it has a higher priority" in why(first)[1]
    assert why(best)[0] == "free"


def test_the_job_before_it_in_a_paused_queue_is_named() -> None:
    pause_queue("mail")
    first = JobFactory(**SEVEN, queue="mail")
    gate, text, job_id = why(JobFactory(**SEVEN))
    assert (gate, job_id) == ("target", first.pk)
    assert text.endswith("it is QUEUED in queue 'mail', which is paused: resume the queue, or cancel the job.")


def test_other_targets_other_tenants_and_scheduled_jobs_block_no_job() -> None:
    WorkerFactory()
    JobFactory(target="customer:8", running=True)
    JobFactory(**SEVEN, tenant="acme", paused=True)
    JobFactory(**SEVEN, scheduled=True)
    assert why(JobFactory(**SEVEN))[0] == "free"


def test_a_tenant_is_named_and_a_secret_in_a_target_is_not() -> None:
    JobFactory(tenant="acme", target="password=hunter2", running=True)
    _, text, _ = why(JobFactory(tenant="acme", target="password=hunter2"))
    assert "of tenant 'acme'" in text
    assert "hunter2" not in text


def test_a_parked_job_behind_a_free_target_will_be_released() -> None:
    job = JobFactory(**SEVEN, waiting_for_target=True)
    assert why(job)[0] == "free"


# Limits


def test_the_limit_of_a_queue_is_reported_with_its_numbers() -> None:
    limit_queue("mail", 2)
    WorkerFactory()
    job = JobFactory(queue="mail")
    JobFactory(queue="mail", running=True)
    JobFactory(queue="mail", expired=True)
    JobFactory(queue="default", running=True)
    assert why(job)[0] == "free"
    JobFactory(queue="mail", running=True)
    assert why(job)[:2] == (
        "limit",
        "2 of at most 2 jobs of queue 'mail' run (its max_running): it can start when one of them ends; raise its limit to let more run.",
    )
    limit_queue("mail", 0)
    assert why(job)[1].endswith("raise its limit.")


def test_the_limit_of_all_queues_is_reported_with_its_numbers(settings: Any) -> None:
    settings.JOBQUEUE = {"MAX_RUNNING": 1}
    WorkerFactory()
    job = JobFactory()
    assert why(job)[0] == "free"
    JobFactory(queue="mail", running=True)
    gate, text, _ = why(job)
    assert (gate, "1 of at most 1 jobs run in all queues together (MAX_RUNNING)" in text) == ("limit", True)


# Time


def test_a_scheduled_job_a_retry_and_one_whose_worker_was_lost_are_distinguished() -> None:
    when = ago(hours=-3)
    scheduled = JobFactory(scheduled=True, run_at=when)
    assert why(scheduled) == ("not_due", f"It is scheduled for {told(when)} (in 3 hours); 'run now' does not wait.", None)
    retry = JobFactory(waiting_for_retry=True, max_attempts=5, run_at=when)
    assert "waits for a retry" in why(retry)[1]
    assert "1 of 5 attempts failed" in why(retry)[1]
    lost = JobFactory(scheduled=True, run_at=when, attempt=2, crashes=2)
    assert why(lost)[1].startswith("Its worker was lost 2 times, so it waits until")


def test_a_job_that_is_due_waits_for_any_worker() -> None:
    job = JobFactory(due=True)
    assert (why(job)[0], "no worker is alive" in why(job)[1]) == ("no_worker", True)
    WorkerFactory(queues=["mail"])
    assert (why(job)[0], "within a second" in why(job)[1]) == ("not_due", True)


def test_a_job_that_waits_for_others_says_so() -> None:
    assert why(JobFactory(waiting_for_children=True))[0] == "children"


# Workers


def test_no_worker_at_all_none_for_the_queue_and_one_that_stops_are_distinguished() -> None:
    job = JobFactory(queue="mail")
    WorkerFactory(heartbeat_at=ago(seconds=40))
    assert why(job)[:2] == ("no_worker", "No worker is alive (none sent a heartbeat in the last 30 s): start 'manage.py runworkers'.")
    WorkerFactory(queues=["images", "default"])
    assert why(job)[1] == "1 worker is alive, but none serves queue 'mail': start 'manage.py runworkers' for it."
    WorkerFactory(queues=["mail"], state="DRAINING")
    assert why(job)[1] == (
        "1 worker for queue 'mail' is drained or about to stop: start 'manage.py runworkers', or 'manage.py jobqueue undrain'."
    )
    WorkerFactory(queues=["mail"])
    assert why(job)[0] == "free"


def test_patterns_of_workers_say_whether_one_serves_the_queue() -> None:
    bulk, other = JobFactory(queue="mail-bulk"), JobFactory(queue="mail-a")
    WorkerFactory(queues=["mail-*", "!mail-bulk"])
    assert why(bulk)[1] == "1 worker is alive, but none serves queue 'mail-bulk': start 'manage.py runworkers' for it."
    assert why(other)[0] == "free"
    first, second = JobFactory(queue="mail-bulk", target="t"), JobFactory(queue="mail-a", target="t", waiting_for_target=True)
    text = (
        f"Job {first.pk} (tests.tasks.add) is before it in the line of target 't', because it is older: it is QUEUED in queue 'mail-bulk'"
    )
    assert why(second)[1] == f"{text}, which no live worker serves: start 'manage.py runworkers' for it, or cancel the job."
    WorkerFactory(queues=["!mail-a"])
    assert why(bulk)[0] == "free"
    assert why(second)[1].endswith("it is QUEUED, and is claimed first.")


def test_a_task_that_the_workers_do_not_know_is_named() -> None:
    WorkerFactory()
    options = {"unknown_since": ago(minutes=1).isoformat()}
    for trait in ("scheduled", "queued"):
        gate, text, _ = why(JobFactory(task="shop.tasks.gone", options=options, **{trait: True}))
        assert (gate, "has not had the task 'shop.tasks.gone' since" in text) == ("unknown_task", True)
    assert why(JobFactory(options={"unknown_since": "soon"}))[0] == "free"
    assert why(JobFactory(options=["odd"]))[0] == "free"


def test_a_task_that_is_not_registered_here_may_be_known_to_a_worker() -> None:
    WorkerFactory()
    gate, text, _ = why(JobFactory(task="elsewhere.tasks.sync"))
    assert (gate, "whose code has the task 'elsewhere.tasks.sync'" in text) == ("free", True)


# Words


@pytest.mark.usefixtures("shown_in_utc")
def test_a_time_of_another_day_is_shown_with_its_day() -> None:
    now = datetime(2026, 3, 1, 3, 0, tzinfo=UTC)
    assert clock(datetime(2026, 3, 1, 2, 14, 5, tzinfo=UTC), now) == "02:14:05 UTC"
    assert clock(datetime(2026, 2, 27, 2, 14, 5, tzinfo=UTC), now) == "2026-02-27 02:14 UTC"


@pytest.mark.parametrize(
    ("seconds", "text"), [(4.4, "in 4 s"), (119, "in 119 s"), (600, "in 10 min"), (7200, "in 2 hours"), (10 * 86400, "in 10 days")]
)
def test_a_length_of_time_is_reported_in_one_unit(seconds: float, text: str) -> None:
    assert about(timedelta(seconds=seconds)) == text


def test_reports_are_plain_data_for_programs() -> None:
    found = why_waiting(JobFactory())
    assert json.dumps([found.gate, found.text, found.job_id])


def test_a_snapshot_takes_a_bounded_number_of_statements() -> None:
    JobFactory(**SEVEN, running=True)
    jobs = JobFactory.create_batch(20, **SEVEN, waiting_for_target=True)
    with CaptureQueriesContext(connection) as captured:
        why_waiting(jobs[-1])
    assert len([one for one in captured if "SAVEPOINT" not in one["sql"]]) <= 5
    assert Job.objects.count() == 21
