"""The history of a job: one entry in its row for each run that did not succeed."""

from datetime import datetime
from typing import Any

from jobqueue.core.json_columns import as_list
from jobqueue.db.records import MAX_ENTRIES
from jobqueue.lifecycle.outcome import Failure

LONGEST = MAX_ENTRIES


def entry(
    *, attempt: int, worker: str, outcome: str, began: datetime | None, ended: datetime, failure: Failure | None = None
) -> dict[str, Any]:
    """Return an entry as JSON values; times are ISO text."""
    entry: dict[str, Any] = {
        "attempt": attempt,
        "worker": worker,
        "outcome": outcome,
        "started_at": began.isoformat() if began else None,
        "finished_at": ended.isoformat(),
    }
    if failure is not None:
        entry.update(failed(failure))
    return entry


def failed(failure: Failure) -> dict[str, Any]:
    """Return the part of an entry that describes a failure."""
    return {"exception": failure.path, "message": failure.summary, "traceback": failure.traceback}


def extended(history: list[dict[str, Any]], new: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the history with one more entry. If it is too long, keep the first entry and the newest ones."""
    longer = [*as_list(history), new]
    return longer if len(longer) <= LONGEST else [longer[0], *longer[-(LONGEST - 1) :]]
