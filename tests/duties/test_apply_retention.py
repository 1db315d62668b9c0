"""The duty that applies retention: able if it is configured, a bounded time for each run, the next run at once if there is more."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from jobqueue.duties.apply_retention import ApplyRetention
from jobqueue.duties.base import Report
from jobqueue.models import Job
from jobqueue.retention import apply
from tests.factories import JobFactory

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("values", "able"),
    [
        ({}, True),
        ({"EVENT_DELETE_AFTER": "never"}, True),
        ({"EVENT_DELETE_AFTER": "never", "STALE_AFTER": {}, "DELETE_AFTER": {"SUCCESS": None}}, False),
        ({"EVENT_DELETE_AFTER": "never", "STALE_AFTER": {}, "DELETE_AFTER": 0}, True),
        ({"EVENT_DELETE_AFTER": "never", "STALE_AFTER": timedelta(days=1), "DELETE_AFTER": {}}, True),
        (
            {
                "EVENT_DELETE_AFTER": "never",
                "STALE_AFTER": {},
                "DELETE_AFTER": {},
                "QUEUE_RETENTION": {"mail": {"DELETE_AFTER": 5}},
            },
            True,
        ),
    ],
)
def test_it_is_able_where_something_is_configured(settings: Any, values: dict[str, Any], able: bool) -> None:
    settings.JOBQUEUE = values
    assert ApplyRetention().can_run() is able


@pytest.mark.parametrize(("outcome", "stale_days", "delete_days"), [("success", 7, 30), ("canceled", 7, 30), ("error", 30, 90)])
def test_without_settings_jobs_go_after_the_usual_times(outcome: str, stale_days: int, delete_days: int) -> None:
    now = timezone.now()
    ages = {days: now - timedelta(days=days, minutes=minutes) for days, minutes in ((stale_days - 1, 0), (stale_days, 5), (delete_days, 5))}
    fresh, stale, _ = (JobFactory(**{outcome: True}, finished_at=ended) for ended in ages.values())
    assert ApplyRetention().run_once(now) == Report(items=2)
    assert {job.pk: job.stale_at is None for job in Job.objects.all()} == {fresh.pk: True, stale.pk: False}


def test_it_marks_and_deletes_and_has_nothing_to_do_the_second_time(settings: Any) -> None:
    settings.JOBQUEUE = {"STALE_AFTER": 3600, "DELETE_AFTER": timedelta(days=1)}
    now = timezone.now()
    for hours in (0, 2, 25):
        JobFactory(success=True, finished_at=now - timedelta(hours=hours))
    duty = ApplyRetention()
    assert duty.run_once(now) == Report(items=2)
    assert duty.run_once(now) == Report()
    assert Job.objects.filter(stale_at__isnull=False).count() == 1
    assert Job.objects.count() == 2


@pytest.mark.long
def test_it_asks_for_the_next_run_at_once_where_there_is_more(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.JOBQUEUE = {"DELETE_AFTER": 0}
    finished = timezone.now() - timedelta(days=1)
    Job.objects.bulk_create([Job(task="tests.tasks.add", status="SUCCESS", finished_at=finished) for _ in range(700)])
    monkeypatch.setattr(apply.Sweep.run, "__defaults__", (0.0,))
    duty = ApplyRetention()
    reports = [duty.run_once(finished)]
    while reports[-1].again:
        reports.append(duty.run_once(finished))
    assert sum(report.items for report in reports) == 700
    assert len(reports) > 1


@pytest.mark.parametrize(
    ("values", "seconds"),
    [
        ({}, 600.0),  # a thousandth of a week, but for the longest
        ({"DELETE_AFTER": timedelta(days=2)}, 172.8),
        ({"STALE_AFTER": 3600}, 60.0),
        ({"DELETE_AFTER": 0}, 60.0),
        ({"EVENT_DELETE_AFTER": timedelta(days=1)}, 86.4),
        ({"QUEUE_RETENTION": {"mail": {"DELETE_AFTER": 100_000}}}, 100.0),
        ({"EVENT_DELETE_AFTER": "never", "STALE_AFTER": {}, "DELETE_AFTER": {}}, 60.0),
    ],
)
def test_it_polls_as_often_as_the_shortest_age_needs(settings: Any, values: dict[str, Any], seconds: float) -> None:
    settings.JOBQUEUE = values
    assert ApplyRetention().interval_seconds == pytest.approx(seconds)
