"""The phases of a job in the admin, in its report and over REST; texts from outside are shown as text."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.urls import reverse

from jobqueue.models import Job
from jobqueue.testing import run_until_idle
from tests.pipelines import samples

pytestmark = pytest.mark.django_db


@pytest.fixture
def failed() -> Job:
    samples.forget()
    samples.fails["process"] = 1
    result = samples.publish_with_summary.enqueue("a")
    run_until_idle()
    job = Job.objects.get(pk=result.job_id)
    job.phases.filter(name="download").update(message="<b>half</b> password=hunter2")
    return job


@pytest.fixture
def client() -> Client:
    made = Client()
    made.force_login(get_user_model().objects.create_superuser("root", "", "x"))
    return made


def test_the_page_of_a_job_shows_its_phases(failed: Job, client: Client) -> None:
    page = client.get(reverse("admin:jobqueue_job_change", args=[failed.pk])).content.decode()
    assert '<table id="jobqueue-phases">' in page
    assert '<progress id="jobqueue-progress" class="jq-bar jq-bar-error" max="100" value="42"' in page
    assert '<tr data-phase="process" data-status="ERROR">' in page
    assert "ValueError: process failed" in page
    assert "&lt;b&gt;half&lt;/b&gt;" in page
    assert "<b>half</b>" not in page
    assert "hunter2" not in page


def test_the_page_of_a_job_that_has_not_begun_shows_its_phases(client: Client) -> None:
    page = client.get(reverse("admin:jobqueue_job_change", args=[samples.publish.enqueue("a").job_id])).content.decode()
    assert page.count('data-status="PENDING"') == 3


def test_the_page_of_a_plain_job_has_no_table_of_phases(client: Client) -> None:
    page = client.get(reverse("admin:jobqueue_job_change", args=[samples.child.enqueue(1).job_id])).content.decode()
    assert "jobqueue-phases" not in page


def test_the_report_and_the_rest_api_have_the_phases(failed: Job, client: Client) -> None:
    told: dict[str, Any] = failed.report()
    assert [(one["name"], one["status"], one["progress"], one["attempts"]) for one in told["phases"]] == [
        ("download", "SUCCESS", 100, 1),
        ("process", "ERROR", 25, 1),
        ("upload", "PENDING", 0, 0),
    ]
    assert told["phases"][0]["started_at"] <= told["phases"][0]["finished_at"]
    assert "hunter2" not in told["phases"][0]["message"]


def test_a_plain_job_has_no_phases() -> None:
    assert Job.objects.get(pk=samples.child.enqueue(1).job_id).report()["phases"] == []
