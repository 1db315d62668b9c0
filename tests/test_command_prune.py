"""``manage.py jobqueue prune``: what it deletes and marks, says, and refuses."""

from __future__ import annotations

from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from jobqueue import clock
from jobqueue.management import prune
from jobqueue.models import Job
from jobqueue.retention.apply import Sweep, Swept
from tests.command import run, told
from tests.factories import JobFactory

pytestmark = pytest.mark.django_db


def ended(days: float = 2, **fields: Any) -> Job:
    fields.setdefault("success", True)
    return JobFactory(finished_at=clock.now() - timedelta(days=days), **fields)


def test_prune_by_the_settings_deletes_and_marks(settings: Any) -> None:
    settings.JOBQUEUE = {"STALE_AFTER": timedelta(days=1), "DELETE_AFTER": timedelta(days=7)}
    ended(8), ended(2), ended(0.5)
    assert told("prune", "--dry-run") == (
        {
            "delete": {"jobs": 1, "or_more": False, "groups": [{"queue": "default", "status": "SUCCESS", "jobs": 1}]},
            "stale": {"jobs": 1, "or_more": False, "groups": [{"queue": "default", "status": "SUCCESS", "jobs": 1}]},
        },
        0,
    )
    assert Job.objects.count() == 3
    assert run("prune") == ("1 job deleted, 1 marked as stale.\n", 0)
    assert told("prune") == ({"deleted": 0, "events": 0, "stale": 0, "set_aside": 0, "complete": True}, 0)


@pytest.mark.long
def test_prune_by_its_options_ignores_the_settings() -> None:
    kept = [ended(2), ended(0.5, queue="mail"), ended(2, queue="mail", success=False, error=True), JobFactory(queue="mail")]
    ended(2, queue="mail")
    ended(2, queue="mail", success=False, canceled=True)
    args = ("prune", "--older-than", 86_400, "--queue", "mail", "--status", "success", "--status", "CANCELED")
    text, status = run(*args, "--dry-run")
    assert (text, status) == (
        "2 jobs would be deleted:\n  mail  CANCELED  1\n  mail  SUCCESS  1\n0 jobs would be marked as stale.\n",
        0,
    )
    assert run(*args) == ("2 jobs deleted, 0 marked as stale.\n", 0)
    assert set(Job.objects.values_list("pk", flat=True)) == {job.pk for job in kept}


def test_a_dry_run_counts_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prune, "MAX_COUNTED", 3)
    for _ in range(5):
        ended()
    assert run("prune", "--dry-run", "--older-than", 0)[0].startswith("3+ jobs would be deleted:")


def test_a_prune_reports_its_progress_and_can_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = iter([Swept(deleted=1000, more=True), Swept(deleted=500, set_aside=2, more=True)])

    def turn(self: Any, seconds: float) -> Swept:
        try:
            return next(runs)
        except StopIteration:
            raise KeyboardInterrupt from None

    monkeypatch.setattr(Sweep, "run", turn)
    monkeypatch.setattr(prune, "TELL_SECONDS", 0.0)
    out, beside = StringIO(), StringIO()
    with pytest.raises(SystemExit) as end:
        call_command("jobqueue", "prune", "--older-than=0", stdout=out, stderr=beside)
    assert end.value.code == 1
    assert out.getvalue() == "1,500 jobs deleted, 0 marked as stale.\n2 jobs could not be deleted; the log says why.\n"
    assert beside.getvalue().splitlines() == [
        "1,000 jobs deleted, 0 marked as stale so far.",
        "1,500 jobs deleted, 0 marked as stale so far.",
        "Stopped. The next run continues here.",
    ]


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ([], "No retention is set: set DELETE_AFTER in JOBQUEUE, or add --older-than SECONDS"),
        (["--older-than=soon"], "--older-than is 'soon'; it must be a number of seconds from 0"),
        (["--older-than=-1"], "--older-than is '-1'"),
        (["--older-than=nan"], "--older-than is 'nan'"),
        (["--older-than=1", "--status=RUNNING"], "--status is 'RUNNING'; it must be one of SUCCESS, ERROR, CANCELED: only ended jobs can"),
        (["--older-than=1", "--queue="], "The name of the queue is ''"),
    ],
)
def test_a_prune_that_cannot_be_meant_is_refused(args: list[str], text: str, settings: Any) -> None:
    settings.JOBQUEUE = {"STALE_AFTER": {}, "DELETE_AFTER": {}}
    ended()
    with pytest.raises(CommandError, match=text):
        run("prune", *args)
    assert Job.objects.count() == 1
