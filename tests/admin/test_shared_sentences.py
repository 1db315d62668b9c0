"""The admin shows the sentences that it shares with commands and REST in the reader's language; all else stays English."""

from __future__ import annotations

import html
import json
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import translation

from jobqueue import clock
from jobqueue.admin.labels import translated
from jobqueue.admin.overview.data import current_problems
from jobqueue.bulk.work import BulkWork
from jobqueue.core.sentences import Sentence
from jobqueue.insight.why import why_waiting
from jobqueue.models import AuditRecord, BackgroundJobLease, BulkAction, Job, JobEvent, Queue
from tests import command
from tests.admin.conftest import button, told
from tests.factories import DeliveryFactory, JobFactory, ScheduleFactory, WorkerFactory

pytestmark = pytest.mark.django_db
ROOT = "/admin/jobqueue/"
LANGUAGES = ("de", "fr", "es", "ar")


def shown(response: Any) -> str:
    """Return the text of a page as a browser shows it."""
    return html.unescape(response.content.decode())


@pytest.fixture
def trouble() -> None:
    now = clock.now()
    JobFactory(error=True, target="t", finished_at=now)
    JobFactory(waiting_for_target=True, target="t")
    JobFactory(queue="unserved")
    WorkerFactory(stuck=2, services={"claimer": {"busy": 99, "age": 99, "failures": 0}}, failed_modules={"shop.tasks": "ImportError: x"})
    WorkerFactory(heartbeat_at=now - timedelta(minutes=5), queues=["default"])
    DeliveryFactory(failed=True, finished_at=now)
    ScheduleFactory(last_error="it failed", next_at=now)
    BackgroundJobLease.objects.create(
        job_name="duty", held_by_worker_id="w", lease_acquired_at=now - timedelta(hours=1), heartbeat_at=now - timedelta(minutes=10)
    )
    BulkAction.objects.create(verb="cancel", state=BulkAction.State.FAILED, finished_at=now, message="it failed", done=3, upto_id=0)


@pytest.mark.usefixtures("trouble")
@pytest.mark.parametrize("language", LANGUAGES)
def test_the_overview_has_no_english_problem(admin_client: Client, language: str) -> None:
    found = current_problems()  # those that the page keeps: the seconds in them pass
    assert len({problem.code for problem in found}) >= 9
    with translation.override(language):
        page = shown(admin_client.get(ROOT))
        for problem in found:
            assert isinstance(problem.text, Sentence)
            assert isinstance(problem.fix, Sentence)
            assert translated(problem.fix) in page
            assert problem.text not in page
            assert problem.fix not in page
    assert all(problem.text in shown(admin_client.get(ROOT)) for problem in found)


@pytest.mark.usefixtures("trouble")
def test_the_pages_of_workers_and_duties_have_no_english_problem(admin_client: Client) -> None:
    with translation.override("de"):
        assert "claimer hat den jetzigen Durchgang seit 99 s nicht beendet" in shown(admin_client.get(f"{ROOT}worker/"))
        assert "und kein Worker hat übernommen" in shown(admin_client.get(f"{ROOT}backgroundjoblease/"))


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(
    "traits",
    [{}, {"paused": True}, {"queue": "held"}, {"waiting_for_target": True, "target": "t"}, {"scheduled": True}, {"expires_at": "soon"}],
)
def test_a_job_says_why_it_waits_in_the_readers_language(admin_client: Client, language: str, traits: dict[str, Any]) -> None:
    now = clock.now()
    Queue.objects.create(name="held", paused=True)
    JobFactory(running=True, target="t", started_at=now)
    values = {**traits, "expires_at": now + timedelta(hours=3)} if "expires_at" in traits else traits
    job = JobFactory(**values)
    why = why_waiting(job)
    assert why is not None
    with translation.override(language):
        page = shown(admin_client.get(f"{ROOT}job/{job.pk}/change/"))
        assert translated(why.text).partition("(")[0] in page
        assert translated(why.text) != why.text
    assert why.text not in page


def test_a_refusal_is_shown_in_the_readers_language_and_recorded_in_english(admin_client: Client, caplog: pytest.LogCaptureFixture) -> None:
    job = JobFactory(success=True)
    caplog.set_level("INFO", logger="jobqueue.audit")
    with translation.override("de"):
        assert told(admin_client.post(button(job, "pause"))) == [
            f"Job {job.pk} wurde nicht angehalten: ein Job im Status SUCCESS kann nicht angehalten werden."
        ]
        JobFactory(running=True, queue="busy")
        messages = told(admin_client.post(f"{ROOT}queue/decide/forget/", {"queue": "busy"}))
        assert messages[-1].startswith("Die Warteschlange 'busy' hat Jobs in QUEUED oder RUNNING; sie kann erst vergessen werden")
        assert "ist kein Feld einer Suche" in shown(admin_client.get(f"{ROOT}job/", {"q": "wrong:1"}))
        form = {"name": "x", "task": "", "cron": "99 * * * *", "time_zone": "Mars/Olympus", "missed": "once", "missed_limit": "1"}
        page = shown(admin_client.post(f"{ROOT}schedule/add/", form))
        assert "Die Zeitzone 'Mars/Olympus' ist hier nicht bekannt" in page
        assert "Der Cron-Ausdruck '99 * * * *' ist nicht lesbar" in page
    assert "a job in state SUCCESS cannot be paused" in caplog.text
    assert "Queue 'busy' has jobs that are QUEUED or RUNNING" in caplog.text


def test_a_german_request_stores_nothing_german(admin_client: Client) -> None:
    jobs = [JobFactory(status=status) for status in ("QUEUED", "ERROR", "PAUSED")]
    with translation.override("de"):
        admin_client.post(button(jobs[0], "cancel"))
        admin_client.post(button(jobs[1], "resume"))
        admin_client.post(f"{ROOT}queue/decide/pause/", {"queue": "default"})
        action = BulkAction.objects.create(verb="resume", query="", upto_id=jobs[-1].pk)
        BulkWork().run()
    stored = [
        *Job.objects.values_list("message", flat=True),
        *(json.dumps(data, ensure_ascii=False) for data in JobEvent.objects.values_list("data", flat=True)),
        *AuditRecord.objects.values_list("text", flat=True),
        *(json.dumps(value) for value in BulkAction.objects.filter(pk=action.pk).values_list("refusals", flat=True)),
    ]
    assert "Job was canceled by user" in stored
    assert "Canceled; the job was QUEUED." in stored
    assert [text for text in stored if any(word in text for word in (" wurde", " ist ", " der ", "Job im"))] == []


@pytest.mark.usefixtures("trouble")
def test_commands_and_rest_are_english_under_every_language(admin_client: Client) -> None:
    job = JobFactory(waiting_for_target=True, target="t")
    ended = JobFactory(success=True)
    calls = [("health",), ("status",), ("report", job.pk), ("cancel", ended.pk), ("leaders",)]

    def answers(**headers: str) -> list[str]:
        rest = [
            admin_client.get("/jobqueue/health/", headers=headers),
            admin_client.get(f"/jobqueue/jobs/{job.pk}/", headers=headers),
            admin_client.post(f"/jobqueue/jobs/{ended.pk}/pause/", headers=headers),
            admin_client.get("/jobqueue/jobs/", {"q": "wrong:1"}, headers=headers),
        ]
        return [*(json.dumps(command.run(*call)) for call in calls), *(response.content.decode() for response in rest)]

    english = answers()
    with translation.override("de"):
        german = answers(accept_language="de")
    assert [_without_numbers(text) for text in german] == [_without_numbers(text) for text in english]
    assert "cannot be paused" in english[3] + english[7]


def _without_numbers(text: str) -> str:
    return "".join("0" if character.isdigit() else character for character in text).replace("0", "")
