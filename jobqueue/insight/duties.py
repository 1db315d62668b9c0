"""The leaders of the duties, read from the rows of the duties. A wrong value in a row causes no error."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from jobqueue import conf
from jobqueue.core import masking
from jobqueue.core.json_columns import as_dict
from jobqueue.core.sentences import sentence
from jobqueue.db import Now
from jobqueue.models import BackgroundJobLease

STUCK_SECONDS = 300.0
STUCK_INTERVALS = 10
LARGEST = 2**53
FIRST_YEAR, LAST_YEAR = 1970, 9998


@dataclass(frozen=True, slots=True)
class Leader:
    """The state of one duty: its leader, its last run, and its problem ("" if it has none)."""

    name: str
    worker_id: str
    process: str
    held_seconds: float | None
    heard_seconds: float | None
    interval_seconds: float | None
    last_run_at: str | None
    last_duration_seconds: float | None
    last_items: int
    runs: int
    items: int
    set_aside: int
    errors: int
    failures_in_a_row: int
    last_error: str
    last_error_at: str | None
    problem: str


def stuck_seconds(interval_seconds: float) -> float:
    """Return the number of seconds without a completed run after which a duty counts as stuck."""
    return max(STUCK_SECONDS, STUCK_INTERVALS * interval_seconds)


def leaders() -> list[Leader]:
    """Return each duty that has ever had a leader, in the order of the names."""
    rows: Any = BackgroundJobLease.objects.current.annotate(now=Now()).order_by("pk")
    return [leader(row, row.now) for row in rows]


def leader(row: BackgroundJobLease, now: datetime) -> Leader:
    """Return the state of a duty at a time."""
    metadata = as_dict(row.metadata)
    held_seconds, heard_seconds = _since(row.lease_acquired_at, now), _since(row.heartbeat_at, now)
    interval = _number(metadata, "interval_seconds")
    return Leader(
        name=row.job_name,
        worker_id=row.held_by_worker_id,
        process=_text(metadata, "process") if row.held_by_worker_id else "",
        held_seconds=held_seconds,
        heard_seconds=heard_seconds,
        interval_seconds=interval,
        last_run_at=_text(metadata, "last_run_at") or None,
        last_duration_seconds=_number(metadata, "last_duration_seconds"),
        last_items=_count(metadata, "last_items"),
        runs=_count(metadata, "runs"),
        items=_count(metadata, "items"),
        set_aside=_count(metadata, "set_aside"),
        errors=_count(metadata, "errors"),
        failures_in_a_row=_count(metadata, "failures_in_a_row"),
        last_error=masking.mask_text(_text(metadata, "last_error")),
        last_error_at=_text(metadata, "last_error_at") or None,
        problem="" if _is_for_everyone(row.job_name) else _problem(metadata, row, now),
    )


def _is_for_everyone(name: str) -> bool:
    """Return whether each worker does this duty, so that it has no leader."""
    options = (conf.current().duties or {}).get(name.partition("@")[0], {})
    return bool(options.get("strategy") == "everyone")


def problems() -> list[str]:
    """Return the problems of the duties, one sentence for each."""
    return [f"Duty {leader.name!r}: {leader.problem}." for leader in leaders() if leader.problem]


def _problem(metadata: dict[str, Any], row: BackgroundJobLease, now: datetime) -> str:
    held_seconds, heard_seconds = _since(row.lease_acquired_at, now), _since(row.heartbeat_at, now)
    interval, ahead = _number(metadata, "interval_seconds") or 0.0, _since(now, row.heartbeat_at or now) or 0.0
    if heard_seconds is None or held_seconds is None:
        return ""  # its leader has released it, so the next worker that checks takes it
    if ahead > conf.current().duty_lease_seconds:
        return sentence("the heartbeat of its leader lies %(seconds)s s ahead of the database's clock", seconds=f"{ahead:.0f}")
    if heard_seconds > 2 * conf.current().duty_lease_seconds:
        return sentence(
            "the last heartbeat of its leader was %(seconds)s s ago, and no worker has taken over", seconds=f"{heard_seconds:.0f}"
        )
    ran = _since(_moment(metadata, "last_run_at"), now)
    idle = held_seconds if ran is None else min(ran, held_seconds)
    if idle > stuck_seconds(interval):
        return sentence("its leader is alive, but has completed no run for %(seconds)s s", seconds=f"{idle:.0f}")
    failures = _count(metadata, "failures_in_a_row")
    if failures <= 2:
        return ""
    error = masking.mask_text(_text(metadata, "last_error"))
    return sentence("it has failed %(number)s times in a row: %(error)s", number=failures, error=error)


def _since(then: datetime | None, now: datetime) -> float | None:
    if then is None:
        return None
    return max((now - then) / timedelta(seconds=1), 0.0)


def _text(metadata: dict[str, Any], name: str) -> str:
    value = metadata.get(name)
    return value if isinstance(value, str) else ""


def _count(metadata: dict[str, Any], name: str) -> int:
    value = metadata.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST else 0


def _number(metadata: dict[str, Any], name: str) -> float | None:
    value = metadata.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) <= LARGEST:  # NaN compares false
        return None
    return float(value)


def _moment(metadata: dict[str, Any], name: str) -> datetime | None:
    return moment(_text(metadata, name))


def moment(text: str | None) -> datetime | None:
    """Return the time in the row of a duty; None if it has none, or if some time zone cannot show its year."""
    try:
        when = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return when if when.tzinfo is not None and FIRST_YEAR <= when.year <= LAST_YEAR else None
