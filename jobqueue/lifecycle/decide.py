"""Decide the new state of a job whose run has ended, by the outcome and the job's row. The functions are pure: no query, no clock.

SUCCESS and ERROR are final. An outcome after which the job would run again (retry, hand-back, interrupt, unknown
task, sleep, wait) becomes PAUSED or CANCELED if the row has a request to stop. If a run was interrupted and the
request was then withdrawn, the job becomes QUEUED, and the run uses up no attempt. The statement that writes a
decision checks that the row still has the values on which the decision depends (``db/run_ends.py``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from jobqueue import conf
from jobqueue.core import event_names as names
from jobqueue.core import states
from jobqueue.core.json_columns import SLEEPS_UNTIL, UNKNOWN_SINCE
from jobqueue.core.moments import moment_of
from jobqueue.db import RunEnd
from jobqueue.events.record import shown
from jobqueue.exceptions import MAX_DELAY_SECONDS
from jobqueue.lifecycle import history
from jobqueue.lifecycle.endings import AGAIN, end_data
from jobqueue.lifecycle.outcome import (
    EXPIRED,
    FINISHED_FIRST,
    INTERRUPTED_BY_SHUTDOWN,
    INTERRUPTED_BY_USER,
    UNKNOWN_TASK_PAUSE_SECONDS,
    Kind,
    Outcome,
)

READ_FIRST = (Kind.INTERRUPTED, Kind.UNKNOWN_TASK, Kind.SLEEP, Kind.WAIT)


class RowState(NamedTuple):
    """The values in the row of a running job on which the decision depends; `now` is the time of the database."""

    now: datetime
    flag: str = ""
    unknown_since: str = ""
    progress: int = 0
    message: str = ""
    was_read: bool = True
    has_start: bool = False  # whether the log has the start of this run


NOT_READ = RowState(datetime.min.replace(tzinfo=UTC), was_read=False)
"""The usual case: no operator has asked the job to stop. The statement that writes the decision checks it."""


SUCCESS = states.SUCCESS[0]
Changes = dict[str, Any]
Decision = tuple[states.Place, Changes]


def must_read(outcome: Outcome) -> bool:
    """Return whether the row must be read before this outcome is decided.

    All other outcomes are decided as if the row had no request to stop.
    """
    if outcome.kind is Kind.SUCCESS:
        return False
    shows = outcome.told is not None or outcome.phase is not None or outcome.done is not None
    return shows or outcome.kind in READ_FIRST


def decide(outcome: Outcome, row: RowState, now: float) -> RunEnd:
    """Return the move of a job whose run ends, and the values to write; `now` is the time of the monotonic clock."""
    if outcome.kind is Kind.SUCCESS:
        return _success(outcome, row, now)
    stops = row.flag and outcome.kind is not Kind.ERROR
    place, changes = _stopped(outcome, row) if stops else DECISIONS[outcome.kind](outcome, row)
    states.check(states.RUNNING, place)
    changes = outcome.explained({"metadata": outcome.metadata, "progress": outcome.progress, **changes})
    changes["data"] = _as_json(shown(end_data(outcome, place[0], changes["message"])))
    if place[0] in states.ENDED:
        changes["ended_ago"] = 0.0
    if not changes.get("given_back"):
        changes["entry"] = _entry(outcome, place)
    if row.was_read and outcome.told is not None:
        changes["shown"] = _last_progress(row, *outcome.told)
    return RunEnd(
        *outcome.lease,
        row.flag,
        alone=not row.was_read,
        status=place[0],
        waiting_for=place[1],
        event="" if _is_repeated(outcome, row, place[0]) else names.ENDING_OF.get(place[0]) or AGAIN[outcome.kind],
        began_ago=max(now - outcome.began, 0.0) if outcome.began else None,
        **changes,
    )


def _success(outcome: Outcome, row: RowState, now: float) -> RunEnd:
    # By position, because a named tuple is made much more slowly by names, and this is done for each job.
    job_id, token = outcome.lease
    message = FINISHED_FIRST if row.flag else outcome.message
    began, ended = now - (outcome.began or now), now - (outcome.ended or now)
    return RunEnd(
        job_id, token, row.flag, False, SUCCESS, "", names.COMPLETED, began, ended, message, outcome.metadata, 100, outcome.result
    )


def _stopped(outcome: Outcome, row: RowState) -> Decision:
    return states.place(row.flag), {"message": INTERRUPTED_BY_USER, **_kept(outcome, row.now)}


def _error(outcome: Outcome, row: RowState) -> Decision:
    return states.ERROR, {"failed": 1, "message": outcome.text, "error_key": outcome.error_key}


def _retry(outcome: Outcome, row: RowState) -> Decision:
    return states.PENDING_TIME, {"failed": 1, "message": outcome.text, "run_in": outcome.delay_seconds}


def _hand_back(outcome: Outcome, row: RowState) -> Decision:
    changes: Changes = {"given_back": 1, "forgets_start": True, "message": outcome.message or ""}
    if outcome.delay_seconds:
        return states.PENDING_TIME, {**changes, "run_in": outcome.delay_seconds}
    return states.QUEUED, changes


def _expired(outcome: Outcome, row: RowState) -> Decision:
    return states.CANCELED, {"given_back": 1, "forgets_start": True, "message": EXPIRED}


def _held(outcome: Outcome, row: RowState) -> Decision:
    return states.PAUSED, {"message": INTERRUPTED_BY_SHUTDOWN}


def _unknown_task(outcome: Outcome, row: RowState) -> Decision:
    since = moment_of(row.unknown_since)
    if since is not None and row.now - since >= timedelta(seconds=conf.current().unknown_task_grace_seconds):
        place, changes = _error(outcome, row)
        return place, {**changes, "options": json.dumps({UNKNOWN_SINCE: row.unknown_since})}
    options = json.dumps({UNKNOWN_SINCE: (since or row.now).isoformat()})
    given_back = {"given_back": 1, "forgets_start": True, "options": options, "message": outcome.text}
    return states.PENDING_TIME, {**given_back, "run_in": UNKNOWN_TASK_PAUSE_SECONDS}


def _sleep(outcome: Outcome, row: RowState) -> Decision:
    return states.PENDING_TIME, {"given_back": 1, "message": outcome.message or "", **_kept(outcome, row.now)}


def _wait(outcome: Outcome, row: RowState) -> Decision:
    return states.PENDING_CHILDREN, {"given_back": 1, "message": outcome.message or "", **_kept(outcome, row.now)}


def _kept(outcome: Outcome, now: datetime) -> Changes:
    """Return the columns that say where and when a suspended job continues. They do not depend on its new state."""
    changes: Changes = {"phase": outcome.following} if outcome.following else {}
    if outcome.kind is Kind.SLEEP:
        latest = now + timedelta(seconds=MAX_DELAY_SECONDS)
        run_at = min(outcome.until or now + timedelta(seconds=outcome.delay_seconds), latest).astimezone(UTC)
        changes |= {"run_at": run_at, "options": json.dumps({SLEEPS_UNTIL: run_at.isoformat()})}
    return changes


DECISIONS: dict[Kind, Callable[[Outcome, RowState], Decision]] = {
    Kind.ERROR: _error,
    Kind.RETRY: _retry,
    Kind.HANDED_BACK: _hand_back,
    Kind.UNKNOWN_TASK: _unknown_task,
    Kind.INTERRUPTED: _hand_back,
    Kind.EXPIRED: _expired,
    Kind.SLEEP: _sleep,
    Kind.WAIT: _wait,
    Kind.STOPPED: _held,
}


def _entry(outcome: Outcome, place: states.Place) -> str:
    """Return the part of a history entry that comes from the outcome. The statement adds the attempt, the worker and the times."""
    label = outcome.kind.name if place[0] == states.Status.PENDING else place[0]
    return json.dumps({"outcome": label} | (history.failed(outcome.failure) if outcome.failure else {}) | outcome.left)


def _last_progress(row: RowState, progress: int, message: str | None) -> str | None:
    """Return the data of the event of the last progress, or None if the row has this progress already."""
    text = row.message if message is None else message
    if (progress, text) == (row.progress, row.message):
        return None
    return _as_json(shown({"progress": progress, "message": text}))


def _is_repeated(outcome: Outcome, row: RowState, status: str) -> bool:
    """Return whether the log has the event of this end already.

    A task that is unknown is tried again every few seconds, but only the first try is recorded. If the log has
    the start of a run, its end is always recorded.
    """
    is_again = bool(row.unknown_since) and outcome.kind is Kind.UNKNOWN_TASK and status == states.Status.PENDING
    return is_again and not row.has_start


def _as_json(data: Mapping[str, Any] | None) -> str | None:
    return json.dumps(data) if data else None
