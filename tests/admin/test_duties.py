"""The page of duties: leaders, problems, and the release of a duty."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.test import Client

from jobqueue import clock
from jobqueue.insight import duties
from jobqueue.models import BackgroundJobLease
from tests.admin.conftest import told

pytestmark = pytest.mark.django_db
DUTIES = "/admin/jobqueue/backgroundjoblease/"


def lease(name: str = "promote_due_jobs", held_seconds: float = 60, heard_seconds: float = 1, **more: Any) -> BackgroundJobLease:
    now = clock.now()
    if "ran_seconds" in more:
        more["last_run_at"] = (now - timedelta(seconds=more.pop("ran_seconds"))).isoformat()
    defaults = {
        "process": "web-1:4711",
        "interval_seconds": 1.0,
        "last_run_at": now.isoformat(),
        "runs": 12,
        "items": 1234,
        "last_items": 5,
    }
    return BackgroundJobLease.objects.create(
        job_name=name,
        held_by_worker_id="7c1e",
        lease_acquired_at=now - timedelta(seconds=held_seconds),
        heartbeat_at=now - timedelta(seconds=heard_seconds),
        metadata={**defaults, **more},
    )


def page(client: Client) -> str:
    answer = client.get(DUTIES)
    assert answer.status_code == 200
    return answer.content.decode()


def test_a_duty_is_shown_with_its_leader_and_what_it_did(admin_client: Client) -> None:
    lease()
    BackgroundJobLease.objects.create(job_name="free")
    text = page(admin_client)
    assert all(part in text for part in ("promote_due_jobs", "web-1:4711", "5 (of 1,234 in 12 runs)", "OK", "1 min 00 s"))
    assert "nobody" in text
    assert "Free" in text


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"held_seconds": 4000, "ran_seconds": 363}, "has completed no run for 36"),
        ({"held_seconds": 4000, "last_run_at": "yesterday"}, "has completed no run for 400"),
        ({"heard_seconds": 40}, "the last heartbeat of its leader was 40 s ago, and no worker has taken over"),
        ({"failures_in_a_row": 3, "last_error": "ValueError: token=abc123secret"}, "it has failed 3 times in a row: ValueError: token="),
    ],
)
def test_problems_are_emphasized(admin_client: Client, wrong: dict[str, Any], text: str) -> None:
    lease(**wrong)
    shown = page(admin_client)
    assert text in shown
    assert "jq-alarm" in shown
    assert "abc123secret" not in shown


@pytest.mark.parametrize(
    "fine", [{"held_seconds": 200, "last_run_at": None}, {"interval_seconds": 3600.0, "held_seconds": 9000, "last_run_at": None}]
)
def test_a_duty_with_long_intervals_is_given_time(admin_client: Client, fine: dict[str, Any]) -> None:
    lease(**fine)
    assert "jq-alarm" not in page(admin_client)


def test_a_heartbeat_ahead_of_the_clock_is_reported(admin_client: Client) -> None:
    lease(heard_seconds=-3600)
    assert "lies 3" in page(admin_client)


def test_a_name_that_no_duty_can_have_is_refused(admin_client: Client) -> None:
    answer = admin_client.post(DUTIES, {"action": "release", "index": 0, "select_across": 0, "_selected_action": ["a\0b"]})
    assert answer.status_code == 400


@pytest.mark.parametrize(
    "odd",
    [
        {"interval_seconds": 1e300, "last_duration_seconds": -1e300},
        {"items": 10**100, "runs": -(10**100)},
        {"last_run_at": "2020-01-01"},
        {"last_run_at": "9999-12-31T23:59:59-23:59", "last_error": "x", "last_error_at": "0001-01-01T00:00:00+23:59"},
    ],
)
def test_odd_numbers_and_times_are_no_500(admin_client: Client, odd: dict[str, Any]) -> None:
    row = lease(**odd)
    page(admin_client)
    assert admin_client.get(f"{DUTIES}{row.pk}/change/").status_code == 200
    assert duties.problems() in ([], duties.problems())


@pytest.mark.parametrize("metadata", [[], None, "text", {"runs": "many", "last_run_at": 7, "interval_seconds": True, "process": ["x"]}])
def test_a_value_that_was_written_by_hand_causes_no_500(admin_client: Client, metadata: Any) -> None:
    row = lease()
    BackgroundJobLease.objects.update(metadata={} if metadata is None else metadata)
    page(admin_client)
    assert admin_client.get(f"{DUTIES}{row.pk}/change/").status_code == 200


def test_names_and_errors_are_escaped(admin_client: Client) -> None:
    row = lease("<script>alert(1)</script>", last_error="<script>alert(2)</script>", last_error_at=clock.now().isoformat())
    shown = (
        page(admin_client)
        + admin_client.get(f"{DUTIES}{row.pk.replace('<', '_3C').replace('>', '_3E').replace('/', '_2F')}/change/").content.decode()
    )
    assert "<script>alert" not in shown


def test_a_duty_is_taken_from_its_leader(admin_client: Client) -> None:
    lease("one")
    lease("two")
    BackgroundJobLease.objects.create(job_name="three")
    answer = admin_client.post(DUTIES, {"action": "release", "index": 0, "select_across": 0, "_selected_action": ["one", "three"]})
    assert told(answer) == [
        "one was released from worker 7c1e; the next worker that checks it becomes its leader.",
        "No worker leads three.",
    ]
    assert dict(BackgroundJobLease.objects.values_list("pk", "held_by_worker_id")) == {"one": "", "two": "7c1e", "three": ""}
    assert BackgroundJobLease.objects.get(pk="one").metadata["runs"] == 12


def test_it_needs_its_permission(client: Client) -> None:
    user: Any = get_user_model().objects.create_user("eve", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_backgroundjoblease"))
    client.force_login(user)
    lease("one")
    assert "release" not in page(client)
    client.post(DUTIES, {"action": "release", "index": 0, "select_across": 0, "_selected_action": ["one"]})
    assert BackgroundJobLease.objects.get().held_by_worker_id == "7c1e"
    user.user_permissions.add(Permission.objects.get(codename="release_backgroundjoblease"))
    client.post(DUTIES, {"action": "release", "index": 0, "select_across": 0, "_selected_action": ["one"]})
    assert BackgroundJobLease.objects.get().held_by_worker_id == ""


def test_a_duty_cannot_be_changed_by_a_form(admin_client: Client) -> None:
    row = lease()
    assert admin_client.post(f"{DUTIES}{row.pk}/change/", {"held_by_worker_id": "me"}).status_code == 403
    assert admin_client.post(f"{DUTIES}{row.pk}/delete/", {"post": "yes"}).status_code == 403
    assert admin_client.get(f"{DUTIES}add/").status_code == 403
