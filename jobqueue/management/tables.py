"""The tables that the command ``jobqueue`` prints."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from jobqueue.core.amounts import bounded, plural
from jobqueue.core.masking import mask_text
from jobqueue.core.texts import shorten
from jobqueue.insight import duties, health
from jobqueue.insight.error_kinds import ErrorKind
from jobqueue.insight.queues import QueueState
from jobqueue.schedules import ticks

QUEUE_COLUMNS = ("queue", "paused", "at most", "queued", "running", "oldest waits for")
LEADER_COLUMNS = ("duty", "led by", "led for", "last run", "took", "items", "runs", "errors", "problem")
WORKER_COLUMNS = ("process", "state", "queues", "running", "slots", "problems")
ERROR_COLUMNS = ("kind", "jobs", "last hour", "last day", "first (UTC)", "last (UTC)", "newest job", "task", "error")
SCHEDULE_COLUMNS = ("schedule", "task", "when", "state", "next (UTC)", "last (UTC)", "last job", "last error")


def queue_cells(queue: QueueState) -> tuple[str, ...]:
    """Return the cells of a queue."""
    limit = "-" if queue.max_running is None else str(queue.max_running)
    queued = bounded(queue.queued, queue.queued_is_capped)
    oldest = "-" if queue.oldest_queued_seconds is None else f"{queue.oldest_queued_seconds:.0f} s"
    paused = f"until {brief(queue.paused_until)} UTC" if queue.paused_until else "paused"
    return (mask_text(queue.name), paused if queue.paused else "-", limit, queued, str(queue.running), oldest)


def worker_cells(worker: health.Alive) -> tuple[str, ...]:
    """Return the cells of a worker."""
    stuck = [plural(worker.stuck_threads, "abandoned thread")] if worker.stuck_threads else []
    problems = "; ".join([*worker.problems, *stuck]) or "-"
    return (worker.process, worker.state.lower(), ", ".join(worker.queues) or "all", str(worker.running), str(worker.slots), problems)


def leader_cells(leader: duties.Leader) -> tuple[str, ...]:
    """Return the cells of a duty and its leader."""
    held_for = "-" if leader.held_seconds is None else f"{leader.held_seconds:.0f} s"
    took = "-" if leader.last_duration_seconds is None else f"{leader.last_duration_seconds:.3f} s"
    led_by = leader.process or leader.worker_id or "nobody"
    return (
        leader.name,
        led_by,
        held_for,
        leader.last_run_at or "-",
        took,
        str(leader.items),
        str(leader.runs),
        str(leader.errors),
        leader.problem or "-",
    )


def error_cells(kind: ErrorKind) -> tuple[str, ...]:
    """Return the cells of a kind of errors."""
    number = bounded(kind.number, kind.number_is_capped)
    times = (brief(kind.first_at), brief(kind.last_at))
    return (
        kind.key,
        number,
        str(kind.in_last_hour),
        str(kind.in_last_day),
        *times,
        str(kind.newest_id),
        kind.task,
        shorten(kind.message, 80),
    )


def schedule_cells(schedule: ticks.ScheduleState) -> tuple[str, ...]:
    """Return the cells of a schedule."""
    when = f"{schedule.when} {schedule.time_zone}".strip()
    job = "-" if schedule.last_job_id is None else str(schedule.last_job_id)
    return (
        schedule.name,
        schedule.task,
        when,
        schedule.state,
        brief(schedule.next_at),
        brief(schedule.last_at),
        job,
        schedule.last_error or "-",
    )


def brief(when: datetime | None) -> str:
    """Return a time without its zone, in UTC."""
    return "-" if when is None else f"{when.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def iso(when: datetime | None) -> str | None:
    """Return a time in ISO 8601, in UTC."""
    return None if when is None else when.astimezone(UTC).isoformat()


def printable(text: str) -> str:
    """Return a text as one line without control characters: any code that enqueues jobs can choose the name of a queue."""
    return "".join(character if character.isprintable() else character.encode("unicode_escape").decode("ascii") for character in text)


def table(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Return the lines of a table."""
    if not rows:
        return ["  none"]
    rows = [tuple(map(printable, row)) for row in rows]  # before the widths are measured
    widths = [max(len(row[number]) for row in [columns, *rows]) for number in range(len(columns))]
    return [f"  {'  '.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()}" for row in [columns, *rows]]
