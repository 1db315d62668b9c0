"""Queues: pause, resume, limit, and how pages show them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from jobqueue import clock, why_waiting
from jobqueue.exceptions import InvalidOption
from jobqueue.insight import queues as shown
from jobqueue.insight.narrowed import queue_states_for
from jobqueue.insight.queues import queue_states
from jobqueue.lifecycle import queues, wakeup
from jobqueue.lifecycle.queues import QueueAnswer, limit_queue, pause_queue, resume_queue
from jobqueue.models import Queue, Sample
from jobqueue.testing import run_until_idle
from tests.factories import JobFactory
from tests.tasks_layer import samples

pytestmark = pytest.mark.django_db


def row(name: str = "mail") -> Any:
    return Queue.objects.filter(pk=name).values_list("paused", "max_running").first()


def test_a_pause_is_a_row_and_says_whether_it_was_so_already() -> None:
    assert pause_queue("mail") == QueueAnswer("mail", changed=True, paused=True, max_running=None)
    assert row() == (True, None)
    assert pause_queue("mail") == QueueAnswer("mail", changed=False, paused=True, max_running=None)
    assert resume_queue("mail") == QueueAnswer("mail", changed=True, paused=False, max_running=None)
    assert (row(), resume_queue("mail").changed) == ((False, None), False)


def test_resuming_a_queue_that_is_not_paused_makes_no_row() -> None:
    assert not resume_queue("mail").changed
    assert not limit_queue("mail", None).changed
    assert row() is None


def test_a_limit_stays_with_a_pause_and_is_taken_away_by_none() -> None:
    assert limit_queue("mail", 3).changed
    pause_queue("mail")
    assert row() == (True, 3)
    assert not limit_queue("mail", 3).changed
    assert limit_queue("mail", 0) == QueueAnswer("mail", changed=True, paused=True, max_running=0)
    assert limit_queue("mail", None).changed
    assert row() == (True, None)


def test_a_limit_of_none_at_all_is_a_row_of_its_own() -> None:
    assert limit_queue("reports", 0) == QueueAnswer("reports", changed=True, paused=False, max_running=0)
    assert row("reports") == (False, 0)


def test_the_time_of_a_decision_is_kept_and_moves_only_with_one() -> None:
    pause_queue("mail")
    long_ago = clock.now() - timedelta(days=1)
    Queue.objects.update(changed_at=long_ago)
    pause_queue("mail")
    assert Queue.objects.get().changed_at == long_ago
    resume_queue("mail")
    assert Queue.objects.get().changed_at > long_ago + timedelta(hours=23)


def test_workers_are_notified_of_a_change_and_of_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    monkeypatch.setattr(wakeup, "queues_changed", lambda: told.append(1))
    pause_queue("mail")
    pause_queue("mail")
    resume_queue("mail")
    resume_queue("mail")
    limit_queue("mail", 2)
    assert len(told) == 3


@pytest.mark.parametrize("name", ["", "x" * 201, "a\0b", "\ud800", None, 7])
@pytest.mark.parametrize("decide", [pause_queue, resume_queue, lambda name: limit_queue(name, 1)])
def test_a_name_that_no_queue_can_have_is_refused(name: Any, decide: Any) -> None:
    with pytest.raises(InvalidOption, match=r"name of the queue is .* it must be text of 1 to 200 characters without NUL"):
        decide(name)
    assert not Queue.objects.exists()


@pytest.mark.parametrize("value", [-1, 2**31, True, "3", 1.5])
def test_a_limit_that_is_no_count_is_refused(value: Any) -> None:
    with pytest.raises(InvalidOption, match=r"max_running is .*; it must be a whole number from 0 to 2147483647, or None for no limit"):
        limit_queue("mail", value)
    assert not Queue.objects.exists()


# What people see


def test_every_queue_that_has_a_row_or_a_job_is_shown_with_its_numbers() -> None:
    limit_queue("reports", 2)
    pause_queue("mail")
    ago = clock.now() - timedelta(seconds=90)
    JobFactory(queue="mail", enqueued_at=ago)
    JobFactory(queue="mail", tenant="acme")
    JobFactory(queue="mail", paused=True)
    JobFactory.create_batch(2, queue="images", running=True)
    JobFactory(queue="images", success=True)
    found = {one.name: one for one in queue_states()}
    assert [*found] == ["mail", "reports", "images"]
    mail = found["mail"]
    assert (mail.paused, mail.max_running, mail.queued, mail.running) == (True, None, 2, 0)
    assert mail.oldest_queued_seconds == pytest.approx(90, abs=20)
    images = found["images"]
    assert (images.paused, images.queued, images.running, images.oldest_queued_seconds) == (False, 0, 2, None)
    assert (found["reports"].max_running, found["reports"].queued) == (2, 0)


def test_queues_with_other_open_or_recent_jobs_are_shown_too(monkeypatch: pytest.MonkeyPatch) -> None:
    JobFactory(queue="failed", error=True)
    JobFactory(queue="later", scheduled=True)
    JobFactory(queue="old", success=True)
    JobFactory(queue="new", success=True)
    Sample.objects.create(kind="queue", name="yesterday", seconds=0, slot=0, begins=1)
    Sample.objects.create(kind="queue", name="(other)", seconds=0, slot=0, begins=1)
    Sample.objects.create(kind="task", name="shop.tasks.send", seconds=0, slot=0, begins=1)
    monkeypatch.setattr(shown, "MAX_READ", 1)
    found = queue_states_for(None)
    assert {one.name for one in found} == {"failed", "later", "new", "yesterday"}
    assert {(one.queued, one.running, one.oldest_queued_seconds) for one in found} == {(0, 0, None)}


def test_the_oldest_job_is_found_behind_a_flood_of_a_higher_priority() -> None:
    JobFactory(queue="mail", priority=-5, enqueued_at=clock.now() - timedelta(hours=1))
    JobFactory.create_batch(20, queue="mail", priority=5)
    [mail] = queue_states()
    assert (mail.queued, mail.oldest_queued_seconds) == (21, pytest.approx(3600, abs=20))


def test_a_count_ends_at_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown, "MAX_COUNTED", 5)
    JobFactory.create_batch(9, queue="mail")
    assert [one.queued for one in queue_states()] == [5]


def test_the_query_of_all_queues_takes_as_many_statements_for_one_as_for_many() -> None:
    def statements() -> int:
        with CaptureQueriesContext(connection) as captured:
            queue_states()
        return len(captured)

    JobFactory(queue="q0")
    one = statements()
    for number in range(1, 20):
        JobFactory(queue=f"q{number}", tenant=f"t{number % 3}")
    assert (statements(), len(queue_states())) == (one, 20)


def until(name: str = "mail") -> Any:
    return Queue.objects.filter(pk=name).values_list("paused", "paused_until").first()


def test_a_pause_can_end_at_a_time_or_some_time_from_now_on() -> None:
    noon = clock.now() + timedelta(hours=3)
    assert pause_queue("mail", until=noon).changed
    assert until() == (True, noon)
    assert not pause_queue("mail", until=noon).changed
    assert pause_queue("mail", until=timedelta(minutes=5)).changed
    assert timedelta(minutes=4) < until()[1] - clock.now() < timedelta(minutes=6)
    assert pause_queue("mail").changed, "a pause without an end has none any more"
    assert until() == (True, None)
    pause_queue("mail", until=noon)
    assert resume_queue("mail").changed
    assert until() == (False, None)


@pytest.mark.parametrize("wrong", [timedelta(), timedelta(seconds=-1), 5, "tomorrow"])
def test_an_end_that_is_no_time_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidOption, match=r"until is .*; it must be a datetime, or a timedelta above 0"):
        pause_queue("mail", until=wrong)
    assert row() is None


def test_an_end_that_is_over_is_refused() -> None:
    with pytest.raises(InvalidOption, match=r"until is .*, which is in the past; it must be a time in the future"):
        pause_queue("mail", until=clock.now() - timedelta(seconds=1))
    assert row() is None


def test_a_pause_that_is_over_ends_and_no_other() -> None:
    job = samples.plain.using(queue_name="mail").enqueue()
    pause_queue("mail", until=timedelta(hours=1))
    pause_queue("reports")
    assert (run_until_idle(), queues.end_pauses()) == (0, 0)
    assert "is paused until" in why_waiting(job.job_id).text
    Queue.objects.filter(pk="mail").update(paused_until=clock.now() - timedelta(seconds=1))
    assert run_until_idle() == 1
    assert (until("mail"), until("reports")) == ((False, None), (True, None))
