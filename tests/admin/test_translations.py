"""The catalogues of translations are complete, and the pages use them; what is stored stays English."""

from __future__ import annotations

import gettext as catalogues
import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import translation

from jobqueue import clock
from jobqueue.admin.labels import LABELS
from jobqueue.core import states
from jobqueue.models import AuditRecord, BackgroundJobLease, BulkAction, Job, JobPhase, LeftWorker, Queue, Schedule, WebhookDelivery
from tests.admin.conftest import button, told
from tests.factories import DeliveryFactory, JobFactory, ScheduleFactory, WorkerFactory

SCRIPT = Path(__file__).parents[2] / ".ci" / "messages.py"
LANGUAGES = ("ar", "de", "es", "fr")
PLACEHOLDER = re.compile(r"%\(\w+\)[sd]|%[sd]|\{\w+\}|</?(?:a|bdi|code)\b")
ROOT = "/admin/jobqueue/"
HEADINGS = {
    "": "Overview",
    "job/": "Jobs",
    "job/errors/": "Errors",
    "job/tasks/": "Tasks",
    "job/targets/": "Targets",
    "job/bulk/": "Bulk actions",
    "queue/": "Queues",
    "worker/": "Workers",
    "schedule/": "Schedules",
    "schedule/add/": "When",
    "webhookdelivery/": "Webhook deliveries",
    "backgroundjoblease/": "Duties",
    "auditrecord/": "Activity",
    "queue/webhook/?queue=default": "Events",
    "job/?status=PAUSED&q=x": "Show all jobs",
    "job/?no=1": "Unknown filter",
}


@pytest.fixture(scope="module")
def messages() -> Any:
    spec = importlib.util.spec_from_file_location("messages", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def key(entry: Any) -> Any:
    return (entry.context, *entry.id) if isinstance(entry.id, tuple | list) else (entry.context, entry.id, None)


def forms(text: Any) -> list[str]:
    return list(text) if isinstance(text, tuple | list) else [text]


def test_the_catalogues_are_those_that_are_made(messages: Any) -> None:
    assert messages.LANGUAGES == LANGUAGES
    assert sorted(path.name for path in (messages.PACKAGE / "locale").iterdir()) == [*LANGUAGES]


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_catalogue_has_exactly_the_texts_of_the_admin_and_translates_each(messages: Any, language: str) -> None:
    entries = [entry for entry in messages.read(language) if entry.id]
    wanted, found = set(messages.found()), {key(entry) for entry in entries}
    assert wanted - found == set(), "run: make messages, and translate what is new"
    assert found - wanted == set(), "run: make messages"
    assert [entry.id for entry in entries if entry.fuzzy or not all(forms(entry.string))] == []
    assert len(messages.read(language).obsolete) == 0


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_translation_has_the_placeholders_of_its_source(messages: Any, language: str) -> None:
    for entry in messages.read(language):
        wanted = sorted(PLACEHOLDER.findall(forms(entry.id)[-1]))
        found = [sorted(PLACEHOLDER.findall(text)) for text in forms(entry.string)]
        assert found[-1] == wanted or not entry.id, entry.id
        assert all({*one} <= {*wanted} for one in found) or not entry.id, entry.id


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_compiled_catalogue_is_that_of_the_texts(messages: Any, language: str) -> None:
    with messages.path_of(language, "mo").open("rb") as file:
        compiled = catalogues.GNUTranslations(file)
    for entry in messages.read(language):
        if isinstance(entry.id, tuple | list):
            assert {compiled.ngettext(*entry.id, number) for number in range(200)} <= {*entry.string}
        elif entry.id:
            assert compiled.gettext(entry.id) == entry.string


def test_the_labels_of_the_lists_on_a_phone_are_those_of_the_catalogues(messages: Any) -> None:
    written = messages.LABELS.read_text()
    assert written == messages.translated_labels({language: messages.read(language) for language in LANGUAGES}), "run: make messages"
    assert ':lang(de) .model-job #result_list .field-waited::before { content: "gewartet "; }' in written


def test_all_labels_that_the_admin_shows_are_in_the_catalogues() -> None:
    choices = (
        *(states.Status, JobPhase.Status, BulkAction.State, WebhookDelivery.Status, Schedule.Missed, LeftWorker.How, states.Recovery),
        states.WaitingFor,
    )
    assert {str(label) for one in choices for value, label in one.choices if value} <= LABELS


@pytest.fixture
def rows() -> dict[str, Any]:
    job = JobFactory(error=True, target="t", queue="default")
    JobFactory(running=True, started_at=clock.now(), waiting_for_target=False)
    JobFactory(waiting_for_target=True, target="t")
    Queue.objects.create(name="default", max_running=5)
    worker = WorkerFactory()
    BackgroundJobLease.objects.create(job_name="x", held_by_worker_id="w", lease_acquired_at=clock.now(), heartbeat_at=clock.now())
    return {
        f"job/{job.pk}/change/": "Arguments",
        f"job/{job.pk}/rerun/": "Run again",
        "queue/default/change/": "First in line",
        f"job/tasks/{job.task}/": "Task",
        f"schedule/{ScheduleFactory().pk}/change/": "Schedules",
        f"webhookdelivery/{DeliveryFactory(job=job, failed=True).pk}/change/": "Receiver",
        f"worker/{worker.pk}/change/": "Running jobs",
        "job/bulk/new/?verb=resume&q=status:ERROR": "Change nothing",
    }


@pytest.mark.django_db
@pytest.mark.parametrize("language", ["ar", "de"])
def test_each_page_speaks_the_language_of_its_reader(admin_client: Client, rows: dict[str, Any], language: str) -> None:
    for page, heading in {**HEADINGS, **rows}.items():
        with translation.override(language):
            response = admin_client.get(ROOT + page)
            translated = translation.gettext(heading)
        content = response.content.decode()
        assert response.status_code == (400 if "no=1" in page else 200), page
        assert translated != heading or language == "de"  # a job is a Job
        assert translated in content, (page, translated)
        assert ('dir="rtl"' in content) is (language == "ar")


@pytest.mark.django_db
def test_a_message_is_translated_and_its_record_is_english(admin_client: Client) -> None:
    job = JobFactory(status=Job.Status.QUEUED)
    with translation.override("de"):
        response = admin_client.post(button(job, "pause"))
        assert told(response) == [f"Job {job.pk} wurde angehalten."]
        admin_client.post(f"{ROOT}queue/decide/limit/", {"queue": "default", "max_running": "3"})
    assert [*AuditRecord.objects.order_by("pk").values_list("text", flat=True)] == [
        "Paused; the job was QUEUED.",
        "At most 3 running at once.",
    ]


@pytest.mark.parametrize("language", ["de", "ar"])
def test_a_label_that_others_share_stays_english(language: str) -> None:
    with translation.override(language):
        assert str(states.Status.QUEUED.label) == "Queued"
