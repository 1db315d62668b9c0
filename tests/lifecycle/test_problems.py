"""Each kind of problem: its threshold, its link, and the cost of its check."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from jobqueue.insight import problems as module
from jobqueue.insight.problems import CHECKS, Problem, Severity, Thresholds, problems
from jobqueue.insight.problems.base import MAX_NAMED, THRESHOLDS
from jobqueue.lifecycle.queues import pause_queue
from jobqueue.models import Job, WebhookDelivery
from tests.factories import DeliveryFactory, JobFactory, ScheduleFactory, WorkerFactory
from tests.lifecycle.test_overview_costs import pages

pytestmark = pytest.mark.django_db


@pytest.fixture
def worker() -> Any:
    return WorkerFactory(host="web-1", pid=4121)


def only(code: str, **thresholds: Any) -> list[Problem]:
    """Return the problems of one kind, and check that there are no other problems."""
    found = problems(Thresholds(**thresholds))
    assert {one.code for one in found} <= {code}
    return found


def rows_behind(problem: Problem) -> int:
    """Return how many rows the page shows to which a problem leads."""
    assert problem.link is not None
    user = get_user_model().objects.filter(username="root").first() or get_user_model().objects.create_superuser("root")
    client = Client()
    client.force_login(user)
    address = reverse(f"admin:{problem.link.page}", args=problem.link.args)
    response = client.get(f"{address}?{urlencode(problem.link.query)}")
    assert response.status_code == 200, response
    if "targets" in response.context:
        return len(response.context["targets"])
    return response.context["cl"].result_count if "cl" in response.context else 1


def test_a_healthy_worker_with_jobs_is_no_problem(worker: Any) -> None:
    for trait in ("queued", "running", "scheduled", "success", "canceled", "paused"):
        JobFactory(**{trait: True})
    DeliveryFactory()
    DeliveryFactory(delivered=True)
    assert problems() == []


@pytest.mark.long
def test_failed_jobs_are_a_problem_for_as_long_as_they_count(worker: Any) -> None:
    JobFactory.create_batch(3, error=True)
    JobFactory(error=True, finished_at=timezone.now() - timedelta(hours=2))
    [problem] = only("failed_jobs")
    assert (problem.text, problem.count, problem.severity) == ("3 jobs ended in ERROR in the last hour.", 3, Severity.WARNING)
    assert rows_behind(problem) == 3
    [longer] = only("failed_jobs", since=86_400)
    assert (longer.count, rows_behind(longer)) == (4, 4)
    assert only("failed_jobs", max_failed_jobs=3) == []
    assert only("failed_jobs", max_failed_jobs=None) == []


def test_failed_jobs_are_counted_up_to_a_bound_and_the_text_says_so(worker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobqueue.insight.problems.work.MAX_COUNTED", 2)
    JobFactory.create_batch(3, error=True)
    [problem] = only("failed_jobs")
    assert (problem.text, problem.more) == ("2+ jobs ended in ERROR in the last hour.", True)


def test_a_target_whose_jobs_wait_for_a_person_is_a_problem(worker: Any) -> None:
    first = JobFactory(target="a", paused=True)
    JobFactory(target="a", waiting_for_target=True)
    JobFactory(target="b", error=True, holds_target=True, finished_at=timezone.now() - timedelta(days=1))
    JobFactory(target="b", queued=True)
    JobFactory(target="no line", paused=True)
    JobFactory(target="runs", running=True)
    JobFactory(target="runs", waiting_for_target=True)
    [problem] = only("blocked_targets")
    assert problem.count == 2
    assert f"The jobs of 2 targets wait for an operator, such as behind job {first.pk}, which is PAUSED" in problem.text
    assert rows_behind(problem) == 2
    assert only("blocked_targets", max_blocked_targets=2) == []


def one_or_more(number: int) -> list[str]:
    """Return the texts of the problems for this number of rows of each kind."""
    for at in range(number):
        JobFactory(error=True), DeliveryFactory(failed=True)
        WebhookDelivery.objects.filter(pk=DeliveryFactory().pk).update(attempts=1, error="no route")
        JobFactory(target=f"t{at}", paused=True), JobFactory(target=f"t{at}", waiting_for_target=True)
        ScheduleFactory(name=f"s{at}", last_error="no", retry_at=timezone.now())
        JobFactory(running=True, lease_expires_at=timezone.now() - timedelta(minutes=5))
        JobFactory(scheduled=True, run_at=timezone.now() - timedelta(minutes=5))
    WorkerFactory(stuck=number)
    return [one.text for one in problems()]


def test_texts_of_problems_have_the_forms_that_their_counts_need(worker: Any) -> None:
    texts = " ".join(one_or_more(1))
    for text in (
        "1 job ended in ERROR",
        "1 webhook delivery was given up in",
        "1 webhook delivery was not accepted by the receiver and is retried.",
        "The jobs of 1 target wait for an operator, behind job",
        "1 schedule could not enqueue its job at the last try, 's0'.",
        "No worker moves 1 job that is RUNNING, although its lease expired more than 60 s ago, job",
        "No worker moves 1 job that is PENDING, although its time came more than 60 s ago, job",
        "1 thread did not stop and was abandoned.",
    ):
        assert text in texts
    assert not re.search(r"\b1 (?:jobs|deliveries|targets|schedules|threads|workers)\b|\b1 [a-z ]+ (?:are|were)\b", texts)


def test_texts_of_several_problems_have_the_forms_that_their_counts_need(worker: Any) -> None:
    texts = " ".join(one_or_more(2))
    for text in (
        "2 jobs ended in ERROR",
        "2 webhook deliveries were given up in",
        "2 webhook deliveries were not accepted by the receiver and are retried.",
        "The jobs of 2 targets wait for an operator, such as behind job",
        "2 schedules could not enqueue their jobs at the last try, such as 's0'.",
        "No worker moves 2 jobs that are RUNNING, although their leases expired more than 60 s ago, such as job",
        "No worker moves 2 jobs that are PENDING, although their times came more than 60 s ago, such as job",
        "2 threads did not stop and were abandoned.",
    ):
        assert text in texts


def test_stuck_threads_are_a_problem_of_their_worker(worker: Any) -> None:
    stuck = WorkerFactory(stuck=2)
    WorkerFactory(stuck=3, heartbeat_at=timezone.now() - timedelta(days=1, hours=1))
    [problem] = only("stuck_threads")
    assert (problem.subject, problem.count) == (str(stuck.pk), 2)
    assert "2 threads did not stop and were abandoned" in problem.text
    assert rows_behind(problem) == 1
    assert only("stuck_threads", max_stuck_threads=2) == []


def test_a_worker_that_fell_silent_is_a_problem(worker: Any) -> None:
    silent = WorkerFactory(host="gone", heartbeat_at=timezone.now() - timedelta(seconds=33))
    WorkerFactory(heartbeat_at=timezone.now() - timedelta(hours=2))
    [problem] = only("silent_worker")
    assert problem.subject == str(silent.pk)
    assert "its last heartbeat was 33 s ago" in problem.text
    assert only("silent_worker", max_silent=60) == []


def test_many_silent_workers_are_counted(worker: Any) -> None:
    WorkerFactory.create_batch(MAX_NAMED + 5, heartbeat_at=timezone.now() - timedelta(seconds=40))
    found = only("silent_worker")
    assert (len(found), found[-1].count) == (MAX_NAMED, 6)
    assert "6 more problems of this kind" in found[-1].text


def test_webhooks_that_fail_are_problems(worker: Any) -> None:
    DeliveryFactory.create_batch(2, failed=True)
    DeliveryFactory(failed=True, finished_at=timezone.now() - timedelta(hours=2))
    DeliveryFactory.create_batch(
        3, attempts=1, error="the receiver returned status 500", next_attempt_at=timezone.now() + timedelta(minutes=1)
    )
    failed, retried = problems()
    assert (failed.code, failed.text) == ("failed_webhooks", "2 webhook deliveries were given up in the last hour.")
    assert (retried.code, retried.count) == ("retried_webhooks", 3)
    assert (rows_behind(failed), rows_behind(retried)) == (2, 3)
    assert problems(Thresholds(max_failed_webhooks=2, max_retried_webhooks=3)) == []


def test_a_webhook_that_is_not_sent_is_a_problem(worker: Any) -> None:
    DeliveryFactory(next_attempt_at=timezone.now() - timedelta(seconds=400))
    [problem] = only("late_webhooks")
    assert (problem.severity, rows_behind(problem)) == (Severity.ERROR, 1)
    assert only("late_webhooks", max_webhook_delay=500) == []


@pytest.mark.long
def test_a_queue_that_no_worker_serves_is_a_problem_unless_it_is_paused(worker: Any) -> None:
    JobFactory(queue="mail")
    assert problems() == []
    worker.queues = ["default"]
    worker.save()
    for name in ("mial", "paused"):
        JobFactory(queue=name)
    pause_queue("paused")
    found = only("unserved_queue")
    assert [one.subject for one in found] == ["mail", "mial"]
    assert rows_behind(found[0]) == 1
    assert only("unserved_queue", max_unserved_queues=2) == []
    for items, names in (
        (["m*", "!mail"], ["mail"]),
        (["!mial"], ["mial"]),
        (["*"], []),
        (["x", "mai*"], ["mial"]),
        ([7], ["mail", "mial"]),
    ):
        worker.queues = items
        worker.save()
        assert [one.subject for one in problems() if one.code == "unserved_queue"] == names


def test_a_schedule_that_fails_is_a_problem(worker: Any) -> None:
    ScheduleFactory(name="bad", last_error="no such task", retry_at=timezone.now() + timedelta(minutes=1))
    ScheduleFactory(last_error="once")
    ScheduleFactory(last_error="no", retry_at=timezone.now(), enabled=False)
    [problem] = only("failing_schedules")
    assert "'bad'" in problem.text
    assert rows_behind(problem) == 1


def test_a_check_that_fails_is_a_problem_and_the_others_continue(worker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def odd(given: Thresholds) -> Any:
        raise ValueError("password=hunter2")

    monkeypatch.setattr(module, "CHECKS", (odd, *CHECKS))
    JobFactory(error=True)
    broken, failed = problems()
    assert (broken.code, broken.subject, failed.code) == ("check_failed", "odd", "failed_jobs")
    assert "hunter2" not in broken.text


def test_errors_come_first_and_each_problem_says_what_to_do() -> None:
    JobFactory(error=True)
    found = problems()
    assert [one.code for one in found] == ["no_worker", "failed_jobs"]
    assert all(one.fix.endswith(".") and one.text.endswith(".") for one in found)


def test_each_threshold_has_a_unit_and_a_text() -> None:
    assert {one.metadata["unit"] for one in THRESHOLDS.values()} == {"SECONDS", "N"}
    assert all(one.metadata["help"] for one in THRESHOLDS.values())


# Costs

ROWS = 50_000
ENDED = (
    "INSERT INTO jobqueue_job (task, queue, tenant, target, status, waiting_for, priority, finished_at)"
    " SELECT 'tests.tasks.add', 'default', '', '', CASE n %% 3 WHEN 0 THEN 'SUCCESS' WHEN 1 THEN 'ERROR' ELSE 'CANCELED' END, '', 0,"
    " now() - make_interval(secs => CASE WHEN n > %s - 300 THEN 60 ELSE 86400 + n END) FROM generate_series(1, %s) AS n"
)
DELIVERED = (
    "INSERT INTO jobqueue_webhookdelivery (message_id, job_id, event, queue, url, status, attempts, finished_at, next_attempt_at, error)"
    " SELECT gen_random_uuid(), 1, 'job.completed', 'default', 'http://x/', CASE n %% 2 WHEN 0 THEN 'DELIVERED' ELSE 'FAILED' END, 1,"
    " now() - make_interval(secs => 86400 + n), now(), '' FROM generate_series(1, %s) AS n"
)
PARKED = (
    "INSERT INTO jobqueue_job (task, queue, tenant, target, status, waiting_for, priority)"
    " SELECT 'tests.tasks.add', 'default', '', 'target:' || n %% 5000, 'PENDING', 'target', 0 FROM generate_series(1, %s) AS n"
)

FORGET = (
    "SELECT pg_clear_relation_stats('public', c.relname::text), pg_clear_attribute_stats('public', c.relname::text, a.attname::text, false)"
    " FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid"
    " WHERE c.relname IN ('jobqueue_job', 'jobqueue_webhookdelivery') AND a.attnum > 0 AND NOT a.attisdropped"
)


@pytest.mark.postgresql
@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("analyzed", [False, True])
def test_a_check_costs_the_same_whatever_the_tables_hold(worker: Any, analyzed: bool) -> None:
    def fill() -> None:
        with connection.cursor() as cursor:
            cursor.execute("VACUUM jobqueue_job, jobqueue_webhookdelivery")  # of what other tests have rolled back
            cursor.execute(ENDED, [ROWS, ROWS])
            cursor.execute(DELIVERED, [ROWS])
            cursor.execute(PARKED, [ROWS])
            if analyzed:
                cursor.execute("ANALYZE")
            else:  # statistics of what another test has left would be worse than none
                cursor.execute(FORGET)

    fill()
    assert Job.objects.count() + WebhookDelivery.objects.count() == 3 * ROWS
    costs = {check.__name__: pages(_call(check)) for check in CHECKS}
    bounded = {name: cost for name, cost in costs.items() if name != "blocked_targets"}
    assert max(bounded.values()) < 300, costs
    assert costs["blocked_targets"] < 20_000, costs


def _call(check: Any) -> Callable[[], Any]:
    return lambda: list(check(Thresholds(max_age=1)))
