"""A reader of the event log misses no event, in whatever order transactions commit."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection, connections, transaction

from jobqueue.core.targets import Target
from jobqueue.db import eventlog as eventlog_sql
from jobqueue.db.cursors import Cursor, Position
from jobqueue.db.eventlog import EVENTS
from jobqueue.models import Job, JobEvent
from tests.rivals import Rival

WRITERS, EVENTS_EACH = 16, 40


def add(job_id: int, name: str = "job.progress", **values: Any) -> int:
    """Write an event past every verb."""
    event: JobEvent = JobEvent.objects.create(job_id=job_id, name=name, **values)
    return event.pk


def ids(cursor: Cursor, limit: int = 100, **which: Any) -> tuple[list[int], Cursor]:
    rows, after = eventlog_sql.events_after(Job.objects.database, cursor, limit, **which)
    return [row.id for row in rows], after


@pytest.mark.django_db(transaction=True)
def test_a_reader_that_begins_now_sees_what_comes_and_nothing_twice() -> None:
    add(1)
    cursor = eventlog_sql.event_cursor(Job.objects.database)
    assert ids(cursor)[0] == []
    second = add(1)
    found, cursor = ids(cursor)
    assert found == [second]
    assert ids(cursor)[0] == []


@pytest.mark.postgresql
def test_an_event_that_commits_after_one_with_a_higher_id_is_not_missed(rival: Rival) -> None:
    cursor = eventlog_sql.event_cursor(Job.objects.database)
    with rival.transaction():
        late = rival.do(add, 1)
        early = add(2)
        found, cursor = ids(cursor)
        assert found == [early]
        assert ids(cursor)[0] == []
    assert late < early
    found, after = ids(cursor)
    assert found == [late]
    assert ids(after)[0] == []


@pytest.mark.postgresql
def test_a_second_read_from_the_horizon_misses_no_event_that_was_not_committed(rival: Rival) -> None:
    before = eventlog_sql.event_cursor(Job.objects.database)
    with rival.transaction():
        late = rival.do(add, 1)
        early = add(2)
        _, cursor = ids(before)
    again, _ = ids(Cursor.at(cursor.horizon))
    assert again == [late, early]


@pytest.mark.django_db(transaction=True)
def test_a_client_replays_from_its_horizon_on_in_bounded_parts() -> None:
    add(1)
    horizon = eventlog_sql.event_cursor(Job.objects.database).horizon
    written = [add(1) for _ in range(7)]
    cursor, seen, parts = Cursor.at(horizon), list[int](), 0
    while parts == 0 or cursor.more:
        found, cursor = ids(cursor, 3)
        assert len(found) <= 3
        if cursor.more:
            assert cursor.horizon == horizon, "in the middle of a batch the horizon does not move"
        seen, parts = seen + found, parts + 1
    assert (seen[-7:], parts) == (written, 3)
    assert cursor.horizon >= horizon  # a transaction of another test, in another database of the server, may hold it


@pytest.mark.postgresql
def test_events_that_commit_between_two_parts_of_a_batch_come_after_it(rival: Rival) -> None:
    cursor = eventlog_sql.event_cursor(Job.objects.database)
    with rival.transaction():
        late = rival.do(add, 1)
        early = [add(2) for _ in range(4)]
        found, cursor = ids(cursor, 2)
    later = add(2)
    seen = found
    while cursor.more:
        found, cursor = ids(cursor, 2)
        seen += found
    assert seen == early
    assert ids(cursor)[0] == [late, later]


@pytest.mark.django_db(transaction=True)
def test_a_reader_may_ask_for_the_events_of_one_job_or_one_target_alone() -> None:
    cursor = eventlog_sql.event_cursor(Job.objects.database)
    of_job = add(1)
    of_target = add(2, tenant="t", target="customer:7")
    add(3, tenant="u", target="customer:7")
    assert ids(cursor, job_id=1)[0] == [of_job]
    assert ids(cursor, behind=Target("t", "customer:7"))[0] == [of_target]


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_events_that_another_server_wrote_before_a_restore_are_not_new_again_and_again() -> None:
    cursor = eventlog_sql.event_cursor(Job.objects.database)
    JobEvent.objects.filter(pk=add(1)).update(xid=2**50)
    mine = add(1)
    found, cursor = ids(cursor)
    assert found == [mine]
    assert ids(cursor)[0] == []


@pytest.mark.long
@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_events_of_a_restored_dump_are_not_new_when_this_server_reaches_their_transactions() -> None:
    restored = [add(1) for _ in range(15)]
    ahead = eventlog_sql.event_cursor(Job.objects.database).latest
    for number, one in enumerate(restored):
        JobEvent.objects.filter(pk=one).update(xid=ahead + 500 + number)  # other tests' databases take numbers, too
    cursor = eventlog_sql.event_cursor(Job.objects.database)
    assert cursor.latest < ahead + 500
    with connection.cursor() as statements:
        while eventlog_sql.event_cursor(Job.objects.database).latest < ahead + 520:
            statements.execute("SELECT pg_current_xact_id()")
    mine = add(1)
    assert ids(cursor)[0] == [mine]
    assert mine in ids(Cursor.at(cursor.horizon))[0]


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_a_cursor_that_is_taken_in_a_transaction_leaves_its_own_events_alone() -> None:
    before = eventlog_sql.event_cursor(Job.objects.database)
    with transaction.atomic():
        mine = add(1)
        eventlog_sql.event_cursor(Job.objects.database)
    assert ids(before)[0] == [mine]


@pytest.mark.postgresql
def test_a_client_that_is_cut_in_a_replay_misses_nothing_that_was_committed_late(rival: Rival) -> None:
    database = Job.objects.database
    start = eventlog_sql.event_cursor(database)
    with rival.transaction():
        late = rival.do(add, 1)
        early = [add(2) for _ in range(4)]
        upto = eventlog_sql.event_cursor(database)
        rows, _ = eventlog_sql.events_after(database, Cursor.behind(start.position)._replace(upto=upto.since), 2)
        assert [row.id for row in rows] == early[:2]
        position = eventlog_sql.position_behind(database, rows[-1].id, start, upto)
    later = add(2)
    assert Position.of(str(position)) == position
    now = eventlog_sql.event_cursor(database)
    rows, _ = eventlog_sql.events_after(database, Cursor.behind(position)._replace(upto=now.since), 100)
    # What was committed while the position's oldest transaction ran may come twice.
    assert {late, later, *early[2:]} <= {row.id for row in rows}
    assert [row.id for row in rows] == sorted(row.id for row in rows)


@pytest.mark.django_db
def test_each_database_and_each_past_of_it_has_a_name() -> None:
    database = Job.objects.database
    assert eventlog_sql.event_history(database) == eventlog_sql.event_history(database) == eventlog_sql.event_cursor(database).history
    for text in ("", "1", "x-1", "0-1-2", f"0-{2**63}", "0-1\n", "0-1-2-3-4"):
        assert Position.of(text) is None
    assert str(Position.of("0-1-2-3")) == "0-1-2-3"


@pytest.mark.long
@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_readers_miss_nothing_of_sixteen_writers_that_hold_their_transactions_open() -> None:
    cursor = begin = eventlog_sql.event_cursor(Job.objects.database)

    def write(job_id: int) -> list[int]:
        chance, pause, written = random.Random(job_id), threading.Event(), []
        try:
            for _ in range(EVENTS_EACH):
                with transaction.atomic():
                    written.append(add(job_id))
                    pause.wait(chance.uniform(0, 0.02))
        finally:
            connections.close_all()
        return written

    seen: list[tuple[int, int]] = []
    with ThreadPoolExecutor(WRITERS) as pool:
        running = [pool.submit(write, job_id) for job_id in range(WRITERS)]
        while not all(one.done() for one in running):
            rows, cursor = eventlog_sql.events_after(Job.objects.database, cursor, 50)
            seen += [(row.job_id, row.id) for row in rows]
    rows, cursor = eventlog_sql.events_after(Job.objects.database, cursor, 10_000)
    seen += [(row.job_id, row.id) for row in rows]
    for job_id, one in enumerate(running):
        assert [pk for owner, pk in seen if owner == job_id] == one.result(), "each once, in order"
    assert sorted(pk for _, pk in seen) == ids(Cursor.at(begin.horizon), 10_000)[0]


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_new_events_are_found_by_the_index_in_a_table_that_was_never_analyzed() -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {EVENTS} (job_id, name, xid) SELECT n, 'job.started', 3 FROM generate_series(1, 20000) AS n")
    since = eventlog_sql.event_cursor(Job.objects.database)
    add(1)
    with connection.execute_wrapper(explained := Explained()):
        assert len(ids(since)[0]) == 1
    assert "jobqueue_event_xid" in explained.text
    assert "Seq Scan" not in explained.text


class Explained:
    """Ask for the plan of each statement that is run."""

    text = ""

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        hint, _, select = sql.partition("; ") if sql.startswith("SET") else ("", "", sql)
        with context["connection"].connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            cursor.execute(f"{hint}; EXPLAIN {select}" if hint else f"EXPLAIN {select}", params)
            while cursor.nextset():
                pass
            self.text += "\n".join(row[0] for row in cursor.fetchall())
        return execute(sql, params, many, context)
