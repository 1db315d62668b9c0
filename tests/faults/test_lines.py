"""Targets and transactional tasks under faults: connections that break at any moment, processes that are killed at the worst moment."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import pytest
from django.contrib.auth.models import Group
from django.db import connection

from tests.faults import tasks
from tests.faults.harness import Workers, job_id, row, wait_for, wait_until, wait_until_started
from tests.faults.together import at_once
from tests.faults.witness import Witness

pytestmark = [pytest.mark.faults, pytest.mark.django_db]


def overlapping(witness: Witness, targets: dict[int, str]) -> list[tuple[int, int]]:
    """Return the pairs of jobs of one target that ran at the same time."""
    running: dict[str, int] = {}
    found = []
    for event in witness.events:
        target = targets[event.job]
        if event.what == "start":
            if target in running:
                found.append((running[target], event.job))
            running[target] = event.job
        elif event.what == "end" and running.get(target) == event.job:
            del running[target]
    return found


def break_connections() -> int:
    """Cut every connection that a worker's part has to this database; return how many."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name LIKE 'jobqueue %'"
        )
        return int(cursor.fetchone()[0])


@at_once
@pytest.mark.session  # behind a pooler, each session can belong to another client a moment later
@pytest.mark.postgresql
def test_lines_continue_where_connections_break_all_the_time(workers: Workers) -> None:
    jobs = [workers.enqueue(tasks.work, 0.05, target=f"line:{number % 12}") for number in range(240)]
    targets = {job_id(job): f"line:{number % 12}" for number, job in enumerate(jobs)}
    started = [workers.start(MIN_WORKERS=4, MAX_WORKERS=4, LEASE_SECONDS=20).ready() for _ in range(2)]
    rounds: list[int] = []

    def ten_more_are_done() -> bool:
        return workers.jobs.filter(status="SUCCESS").count() >= min(10 * (len(rounds) + 1), len(jobs))

    while len(rounds) < 24:
        wait_until(ten_more_are_done, "the lines continue", 30)
        rounds.append(break_connections())
    assert sum(rounds) > 24, "several connections broke, and again and again"
    assert overlapping(workers.witness, targets) == []
    assert set(workers.witness.starts().values()) == {1}
    order: dict[str, list[int]] = defaultdict(list)
    for event in workers.witness.events:
        if event.what == "start":
            order[targets[event.job]].append(event.job)
    assert all(ids == sorted(ids) for ids in order.values())
    assert [worker.stop() for worker in started] == [0, 0]


@at_once
def test_the_line_moves_on_within_a_lease_where_its_worker_is_killed(workers: Workers) -> None:
    first = workers.enqueue(tasks.held_wait, 60, target="line:held")
    again = workers.enqueue(tasks.wait, 60, target="line:again")
    behind = [workers.enqueue(tasks.work, target=target) for target in ("line:held", "line:again")]
    worker = workers.start().ready()
    wait_until_started(workers.witness, first, again)
    worker.kill()
    workers.start().ready()
    wait_for(first, "ERROR")
    wait_until(lambda: workers.witness.count("start", job_id(again)) == 2, "the holder runs again, before those behind it")
    assert [row(job).status for job in behind].count("SUCCESS") == 0
    row(first).cancel()
    wait_for(behind[0], "SUCCESS")
    row(again).cancel()
    wait_for(behind[1], "SUCCESS")


# Transactional


@pytest.fixture
def slow_commit() -> Iterator[None]:
    """Make a commit that created a group take three seconds, so that a fault can happen during it."""
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION rest() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN IF new.name LIKE 'slow%' THEN PERFORM pg_sleep(3); END IF; RETURN NULL; END $$"
        )
        cursor.execute(
            "CREATE CONSTRAINT TRIGGER rest AFTER INSERT ON auth_group DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION rest()"
        )
    yield
    with connection.cursor() as cursor:
        cursor.execute("DROP TRIGGER rest ON auth_group")
        cursor.execute("DROP FUNCTION rest")


def committing() -> list[int]:
    """Return the server processes that are in the middle of such a commit."""
    with connection.cursor() as cursor:
        # Those of a worker's services are short, and not meant.
        cursor.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND query = 'COMMIT' AND state = 'active'"
            " AND wait_event = 'PgSleep'"
        )
        return [found[0] for found in cursor.fetchall()]


@pytest.mark.postgresql
def test_a_worker_that_is_killed_in_the_middle_of_a_commit_leaves_both_or_neither(workers: Workers, slow_commit: None) -> None:
    job = workers.enqueue(tasks.book, "slow", target="line:1")
    behind = workers.enqueue(tasks.book, "quick", target="line:1")
    worker = workers.start().ready()
    wait_until(committing, "the commit is under way")
    assert (row(job).status, Group.objects.count()) == ("RUNNING", 0)
    worker.kill()
    workers.start().ready()
    wait_for(behind, "SUCCESS")
    done = wait_for(job, "SUCCESS")
    made = sorted(Group.objects.values_list("name", flat=True))
    assert made == [f"quick {job_id(behind)}", f"slow {job_id(job)}"]
    assert done.attempt == 1, "the server had the commit, and carried it out"


@pytest.mark.postgresql
def test_a_commit_whose_connection_breaks_undoes_the_work_and_the_job_is_tried_again(workers: Workers, slow_commit: None) -> None:
    job = workers.enqueue(tasks.book, "slow", max_attempts=3)
    worker = workers.start().ready()
    [process] = wait_until(committing, "the commit is under way")
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", [process])
    done = wait_for(job, "SUCCESS")
    assert (done.attempt, done.failures) == (2, 1)
    assert list(Group.objects.values_list("name", flat=True)) == [f"slow {job_id(job)}"]
    assert worker.stop() == 0


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_worker_that_dies_before_the_commit_leaves_nothing(workers: Workers, when: str) -> None:
    job = workers.enqueue(tasks.book, when, True)
    worker = workers.start().ready()
    wait_until(lambda: not worker.alive, "the worker dies")
    assert (row(job).status, Group.objects.count()) == ("RUNNING", 0)
    workers.start().ready()
    done = wait_for(job, "SUCCESS")
    assert (done.attempt, done.crashes) == (2, 1)
    assert list(Group.objects.values_list("name", flat=True)) == [f"{when} {job_id(job)}"]
