"""Decide: a table of the outcome of a run, by its kind and the job's row; without a database."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jobqueue.core import states
from jobqueue.db import Lease, RunEnd
from jobqueue.exceptions import MAX_DELAY_SECONDS
from jobqueue.lifecycle.decide import DECISIONS, NOT_READ, RowState, decide, must_read
from jobqueue.lifecycle.outcome import (
    EXPIRED,
    FINISHED_FIRST,
    INTERRUPTED_BY_SHUTDOWN,
    INTERRUPTED_BY_USER,
    Failure,
    FinishedPhase,
    Kind,
    LastProgress,
    Outcome,
    PhaseProgress,
)

NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)
READ = RowState(NOON)
FAILURE = Failure("builtins.ValueError", "ValueError: no", "Traceback …")
OUTCOME = Outcome(Lease(7, 3), Kind.SUCCESS, began=90.0, ended=99.0, result="[1]", failure=FAILURE, delay_seconds=60.0, message="so far")
# Without a request: the place, the event, whether the run costs an attempt, the failures it adds, the seconds to wait, the message.
TABLE: dict[Kind, tuple[states.Place, str, bool, int, float | None, str]] = {
    Kind.SUCCESS: (states.SUCCESS, "job.completed", True, 0, None, "so far"),
    Kind.ERROR: (states.ERROR, "job.failed", True, 1, None, "so far"),
    Kind.RETRY: (states.PENDING_TIME, "job.retrying", True, 1, 60.0, "so far"),
    Kind.HANDED_BACK: (states.PENDING_TIME, "job.handed_back", False, 0, 60.0, "so far"),
    Kind.INTERRUPTED: (states.PENDING_TIME, "job.handed_back", False, 0, 60.0, "so far"),
    Kind.UNKNOWN_TASK: (states.PENDING_TIME, "job.handed_back", False, 0, 5.0, "so far"),
    Kind.EXPIRED: (states.CANCELED, "job.canceled", False, 0, None, EXPIRED),
    Kind.STOPPED: (states.PAUSED, "job.paused", True, 0, None, INTERRUPTED_BY_SHUTDOWN),
    Kind.SLEEP: (states.PENDING_TIME, "job.sleeping", False, 0, None, "so far"),
    Kind.WAIT: (states.PENDING_CHILDREN, "job.waiting", False, 0, None, "so far"),
}
STAND = (Kind.SUCCESS, Kind.ERROR)


def decided(kind: Kind, row: RowState = READ, **fields: Any) -> RunEnd:
    return decide(replace(OUTCOME, kind=kind, **fields), row, 100.0)


def test_the_table_has_every_kind() -> None:
    assert set(TABLE) == {Kind.SUCCESS, *DECISIONS} == set(Kind)


@pytest.mark.parametrize("kind", Kind)
def test_a_run_whose_job_was_not_asked_to_stop(kind: Kind) -> None:
    place, event, costs, failures, seconds, message = TABLE[kind]
    end = decided(kind)

    assert (end.job_id, end.token, end.flag) == (7, 3, "")
    assert ((end.status, end.waiting_for), end.event) == (place, event)
    assert (end.given_back == 0, end.failed, end.run_in, end.message) == (costs, failures, seconds, message)
    assert (end.ended_ago is not None) == (place[0] in states.ENDED)
    assert (end.entry is not None) == (costs and kind is not Kind.SUCCESS)
    assert end.began_ago == 10.0


@pytest.mark.parametrize("flag", ["PAUSED", "CANCELED"])
@pytest.mark.parametrize("kind", Kind)
def test_a_standing_request_beats_all_but_a_success_and_an_error(kind: Kind, flag: str) -> None:
    end = decided(kind, RowState(NOON, flag))

    assert end.flag == flag
    if kind in STAND:
        assert (end.status, end.waiting_for) == TABLE[kind][0]
        assert end.message == (FINISHED_FIRST if kind is Kind.SUCCESS else "so far")
        return
    assert ((end.status, end.waiting_for), end.message) == (states.place(flag), INTERRUPTED_BY_USER)
    assert (end.given_back, end.failed, end.run_in) == (0, 0, None), "the run counts, and is no failure"
    assert json.loads(end.entry or "")["outcome"] == flag
    assert end.event == {"PAUSED": "job.paused", "CANCELED": "job.canceled"}[flag]


@pytest.mark.parametrize("kind", Kind)
def test_what_a_row_must_not_have_is_checked_if_it_was_not_read(kind: Kind) -> None:
    assert decided(kind).alone is False
    assert decided(kind, NOT_READ).alone == (kind is not Kind.SUCCESS)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"kind": Kind.RETRY}, False),
        ({"kind": Kind.SUCCESS, "told": LastProgress(3, "three"), "phase": PhaseProgress("load", 1, None)}, False),
        ({"kind": Kind.ERROR, "told": LastProgress(3, None)}, True),
        ({"kind": Kind.RETRY, "phase": PhaseProgress("load", 1, None)}, True),
        ({"kind": Kind.SLEEP, "done": FinishedPhase("load", 0)}, True),
        *(({"kind": kind}, True) for kind in (Kind.INTERRUPTED, Kind.UNKNOWN_TASK, Kind.SLEEP, Kind.WAIT)),
    ],
)
def test_a_row_is_read_first_if_the_decision_depends_on_it(fields: dict[str, Any], expected: bool) -> None:
    assert must_read(replace(OUTCOME, **fields)) is expected


@pytest.mark.parametrize(("age", "place"), [(299, states.PENDING_TIME), (300, states.ERROR)])
def test_a_task_that_stays_unknown_for_longer_than_its_grace_is_an_error(age: int, place: states.Place) -> None:
    since = (NOON - timedelta(seconds=age)).isoformat()
    end = decided(Kind.UNKNOWN_TASK, RowState(NOON, unknown_since=since))

    assert (end.status, end.waiting_for) == place
    assert json.loads(end.options or "") == {"unknown_since": since}
    assert end.event == ("job.failed" if place == states.ERROR else ""), "a repeated hand-back is not an event"


@pytest.mark.parametrize("flag", ["", "PAUSED"])
def test_a_sleep_keeps_its_time_and_its_next_phase_whatever_it_is_moved_to(flag: str) -> None:
    until = NOON + timedelta(hours=1)
    end = decided(Kind.SLEEP, RowState(NOON, flag), until=until, following="load")

    assert (end.run_at, end.phase, json.loads(end.options or "")) == (until, "load", {"sleeps_until": until.isoformat()})


def test_a_sleep_has_a_longest_time() -> None:
    end = decided(Kind.SLEEP, until=NOON + timedelta(days=4000))

    assert end.run_at == NOON + timedelta(seconds=MAX_DELAY_SECONDS)


@pytest.mark.parametrize(("progress", "message", "expected"), [(40, "on", True), (30, "off", False), (30, None, False), (40, None, True)])
def test_the_last_progress_is_an_event_unless_the_row_has_it(progress: int, message: str | None, expected: bool) -> None:
    end = decided(Kind.RETRY, RowState(NOON, progress=30, message="off"), told=LastProgress(progress, message))

    assert (end.shown is not None) is expected
    if end.shown is not None:
        assert json.loads(end.shown) == {"progress": progress, "message": message or "off"}


def test_an_abandoned_run_says_so_in_the_message_and_in_the_history() -> None:
    end = decided(Kind.RETRY, abandoned="tasks.py:7")

    assert end.message == "so far; abandoned: its thread is still at tasks.py:7"
    assert json.loads(end.entry or "")["abandoned"] == "its thread is still at tasks.py:7"


def test_a_run_that_never_began_has_no_beginning() -> None:
    assert decided(Kind.HANDED_BACK, began=None).began_ago is None
