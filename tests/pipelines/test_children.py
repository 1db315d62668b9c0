"""The poll of jobs that wait for children reads few rows, and does not miss any."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.db import DatabaseError, connection
from django.utils import timezone

from jobqueue.core import states
from jobqueue.core.retention_rules import OUTCOMES, Rules, after
from jobqueue.lifecycle import children
from jobqueue.lifecycle.children import Parents, resume_parents
from jobqueue.models import Job, JobDependency
from jobqueue.retention.apply import Sweep
from tests.factories import JobFactory
from tests.rivals import Rival


def parent_of(*statuses: str, **columns: Any) -> Job:
    """Return a job that waits for children, one for each trait."""
    parent = JobFactory(waiting_for_children=True, phase="gather", **columns)
    for status in statuses:
        JobDependency.objects.create(parent=parent, child=JobFactory(**{status: True}))
    return parent


def place(job: Job) -> states.Place:
    return Job.objects.get(pk=job.pk).place


@pytest.mark.django_db
@pytest.mark.parametrize("live", ["queued", "running", "paused", "scheduled", "waiting_for_target", "waiting_for_children"])
def test_a_job_waits_while_one_of_its_children_lives(live: str) -> None:
    parents = [parent_of(live, "success"), parent_of("success", live)]
    resume_parents()
    assert [place(one) for one in parents] == [states.PENDING_CHILDREN] * 2
    Job.objects.exclude(pk__in=[one.pk for one in parents]).filter(status__in=states.LIVE).update(
        status="CANCELED", waiting_for="", lease_owner="", lease_expires_at=None, heartbeat_at=None
    )
    assert resume_parents() == 2
    assert [place(one) for one in parents] == [states.QUEUED] * 2


@pytest.mark.django_db
def test_a_job_continues_when_all_have_ended_in_whatever_way_and_a_paused_one_does_not() -> None:
    going = [parent_of("success", "error", "canceled"), parent_of()]
    paused = parent_of("success")
    Job.objects.filter(pk=paused.pk).update(status="PAUSED", waiting_for="")
    assert resume_parents() == 2
    assert [place(one) for one in going] == [states.QUEUED] * 2
    assert place(paused) == states.PAUSED


@pytest.mark.long
@pytest.mark.django_db
def test_a_poll_costs_the_same_for_one_child_and_for_thousands(django_assert_num_queries: Callable[[int], Any]) -> None:
    parent = parent_of("queued")
    parents = Parents()
    with django_assert_num_queries(2):
        assert parents.run() is None
    many = Job.objects.bulk_create([Job(task="tests.tasks.add") for _ in range(3000)])
    JobDependency.objects.bulk_create([JobDependency(parent=parent, child=one) for one in many])
    with django_assert_num_queries(2):
        assert parents.run() is None
    assert parents.any


@pytest.mark.django_db
def test_more_children_than_one_poll_marks_are_marked_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "MARKED", 10)
    parent = parent_of(*["success"] * 35)
    parents = Parents()
    looks = 0
    while place(parent) == states.PENDING_CHILDREN:
        parents.run()
        looks += 1
    assert looks == 4


@pytest.mark.django_db
def test_more_parents_than_one_poll_takes_are_all_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "PARENTS", 3)
    made = [parent_of("success" if number % 2 else "queued") for number in range(10)]
    assert resume_parents() == 5
    assert [place(one) == states.QUEUED for one in made] == [bool(number % 2) for number in range(10)]


@pytest.mark.postgresql
def test_a_locked_parent_delays_no_other(rival: Rival) -> None:
    locked, free = parent_of("success"), parent_of("success")
    with rival.locking(locked):
        assert resume_parents() == 1
    assert place(free) == states.QUEUED
    assert resume_parents() == 1


@pytest.mark.django_db
def test_a_parent_that_cannot_be_moved_is_set_aside_and_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    bad, good = parent_of("success"), parent_of("success")
    advance = Parents._advance

    def fail(self: Parents, job_id: int) -> int:
        if job_id == bad.pk:
            raise DatabaseError("no")
        return advance(self, job_id)

    monkeypatch.setattr(Parents, "_advance", fail)
    parents = Parents()
    for _ in range(3):
        parents.run()
    assert place(good) == states.QUEUED
    assert place(bad) == states.ERROR


@pytest.mark.postgresql
@pytest.mark.django_db
def test_the_poll_finds_parents_and_their_first_open_child_by_an_index_without_statistics() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "TRUNCATE jobqueue_job, jobqueue_jobdependency CASCADE"
        )  # autovacuum may have made statistics of the rows of other tests
        parent_of("queued")
        cursor.execute("SET LOCAL enable_seqscan = on")
        first = JobDependency.objects.filter(parent=1, ended=False).order_by("child_id")[:1]
        assert "jobqueue_dependency_o" in first.explain()
    waiting = Job.objects.current.filter(status="PENDING", waiting_for="children", pk__gt=0).order_by("pk")[:200]
    assert "jobqueue_job_parents" in waiting.explain()


def by_retention(jobs: list[Job]) -> int:
    return Sweep(Rules(), after(OUTCOMES, 3600)).run(60).deleted


def in_bulk(jobs: list[Job]) -> int:
    return int(Job.objects.filter(pk__in=[job.pk for job in jobs]).delete()[1]["jobqueue.Job"])


def one_by_one(jobs: list[Job]) -> int:
    return sum(job.delete()[1]["jobqueue.Job"] for job in jobs)


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("who_is_first", ["the deletion", "the poll of parents"])
@pytest.mark.parametrize("delete", [by_retention, in_bulk, one_by_one])
def test_a_deletion_of_children_and_a_poll_of_their_parents_never_wait_for_each_other(
    delete: Callable[[list[Job]], int], who_is_first: str, rival: Rival
) -> None:
    """The first one keeps all of its locks until the second one is done. So neither can be part of a deadlock."""
    parents = [parent_of("success", "success", "error") for _ in range(3)]
    children = [one.child for one in JobDependency.objects.select_related("child").order_by("-pk")]
    for child in children:  # each was a parent itself
        JobDependency.objects.create(parent=child, child=parents[0], ended=True)
    Job.objects.filter(status__in=states.ENDED).update(finished_at=timezone.now() - timedelta(days=2))
    first, second = (
        (partial(delete, children), resume_parents) if who_is_first == "the deletion" else (resume_parents, partial(delete, children))
    )
    with rival.transaction():
        counts = [rival.do(first)]
        counts.append(second())  # fails if it has to wait
    assert sorted(counts) == [3, 9]
    assert resume_parents() == 0
    assert {place(one) for one in parents} == {states.QUEUED}
    assert not Job.objects.filter(pk__in=[child.pk for child in children]).exists()
    assert not JobDependency.objects.filter(parent__in=[child.pk for child in children]).exists()
