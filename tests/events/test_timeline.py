"""The newest events of a job are shown in the report and on its page, as text, and a bounded number of them."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from jobqueue.events.record import record
from jobqueue.insight import timeline
from jobqueue.models import Job
from tests.factories import JobFactory

pytestmark = pytest.mark.django_db
XSS = "<script>alert('x')</script>"


@pytest.fixture
def viewer(client: Client) -> Client:
    user = User.objects.create_user("ann", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_job"))
    client.force_login(user)
    return client


def page(client: Client, job: Job) -> str:
    return client.get(reverse("admin:jobqueue_job_change", args=[job.pk])).content.decode()


def test_a_report_has_the_newest_events_in_their_order() -> None:
    job = JobFactory(running=True)
    for number in range(timeline.MAX_EVENTS + 3):
        record(job, "job.retrying", {"delay_seconds": number, "message": "password=hunter2"})
    told = job.report()
    assert told["older_events"] is True
    assert [event["data"]["delay_seconds"] for event in told["events"]] == [*range(3, timeline.MAX_EVENTS + 3)]
    assert told["events"][0].keys() == {"id", "name", "at", "attempt", "data"}
    assert "hunter2" not in str(told)
    assert JobFactory(queued=True).report()["events"] == []


def test_the_page_of_a_job_shows_its_events_as_text_with_the_time_between_them(viewer: Client) -> None:
    job = JobFactory(running=True)
    record(job, "job.started")
    record(job, "job.failed", {"message": XSS, "exception": "builtins.ValueError"})
    html = page(viewer, job)
    assert f'<ol id="jobqueue-timeline" data-job="{job.pk}"' in html
    assert re.findall(r'<li class="jq-event" data-event-id="\d+" data-name="([a-z.]+)">', html) == ["job.started", "job.failed"]
    assert XSS not in html
    assert "&lt;script&gt;alert" in html
    assert "builtins.ValueError" in html
    assert re.search(r'jq-after">\+0\.\d\d s<', html)
    assert "Older events" not in html


def test_a_long_story_is_cut_with_a_hint(viewer: Client) -> None:
    job = JobFactory(running=True)
    for _ in range(timeline.MAX_EVENTS + 1):
        record(job, "job.retrying")
    html = page(viewer, job)
    assert html.count('class="jq-event"') == timeline.MAX_EVENTS
    assert "Older events are not shown here." in html
