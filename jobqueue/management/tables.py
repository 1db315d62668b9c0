"""The tables that the command ``jobqueue`` prints: on a terminal with colors, relative times, and only the columns that fit."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from jobqueue import clock
from jobqueue.core.amounts import bounded, plural
from jobqueue.core.masking import mask_text
from jobqueue.core.texts import shorten
from jobqueue.insight import duties, health
from jobqueue.insight.error_kinds import ErrorKind
from jobqueue.insight.queues import QueueState
from jobqueue.management.terminal import screen
from jobqueue.schedules import ticks

QUEUE_COLUMNS = ("queue", "paused", "at most", "queued", "running", "oldest waits for")
LEADER_COLUMNS = ("duty", "led by", "led for", "last run", "took", "items", "runs", "errors", "problem")
WORKER_COLUMNS = ("process", "state", "queues", "running", "slots", "problems")
ERROR_COLUMNS = ("kind", "jobs", "last hour", "last day", "first (UTC)", "last (UTC)", "newest job", "task", "error")
MIN_TEXT, MAX_TEXT = 10, 30
# The columns that a narrow terminal leaves out, the least important first; then the rest, from the right.
LEAST: Final = (
    *("took", "runs", "items", "led for", "last day", "first", "newest job", "attempt", "last job", "release", "at most", "arguments"),
    *("created", "kind", "last hour", "slots", "queue", "started", "reason", "queues"),
)
PROBLEMS: Final = ("problem", "problems", "last error", "error")
COLORS: Final = {
    **dict.fromkeys(("ERROR", "FAILED", "KILLED", "SILENT"), "ERROR"),
    **dict.fromkeys(("PAUSED", "DRAINING", "DRAINED", "CANCELED", "STOPPING"), "WARNING"),
    **dict.fromkeys(("RUNNING", "SUCCESS", "DELIVERED", "DONE"), "SUCCESS"),
}
SCHEDULE_COLUMNS = ("schedule", "task", "when", "state", "next (UTC)", "last (UTC)", "last job", "last error")


def queue_cells(queue: QueueState) -> tuple[str, ...]:
    """Return the cells of a queue."""
    limit = "-" if queue.max_running is None else str(queue.max_running)
    queued = bounded(queue.queued, queue.queued_is_capped)
    oldest = "-" if queue.oldest_queued_seconds is None else f"{queue.oldest_queued_seconds:.0f} s"
    paused = f"until {_absolute(queue.paused_until)} UTC" if queue.paused_until else "paused"
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
    """Return a time without its zone, in UTC; on a terminal, its distance from now."""
    if when is None:
        return "-"
    return distance((when - clock.now()).total_seconds()) if screen().is_terminal else _absolute(when)


def distance(seconds: float) -> str:
    """Return the distance of a time from now in its largest unit: "3 min ago", "in 2 h"."""
    number, unit = abs(seconds), "s"
    for size, name in ((86_400, "d"), (3600, "h"), (60, "min")):
        if number >= size:
            number, unit = number / size, name
            break
    return f"in {number:.0f} {unit}" if seconds > 0 else f"{number:.0f} {unit} ago"


def _absolute(when: datetime) -> str:
    return f"{when.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def iso(when: datetime | None) -> str | None:
    """Return a time in ISO 8601, in UTC."""
    return None if when is None else when.astimezone(UTC).isoformat()


def printable(text: str) -> str:
    """Return a text as one line without control characters: any code that enqueues jobs can choose the name of a queue."""
    return "".join(character if character.isprintable() else character.encode("unicode_escape").decode("ascii") for character in text)


class Line(str):
    """A line of a table, whose texts are printable already, and which can have colors."""

    __slots__ = ()


def shown(line: str) -> str:
    """Return a line as it is printed."""
    return line if isinstance(line, Line) else printable(line)


def table(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Return the lines of a table."""
    if not rows:
        return ["  none"]
    rows = [tuple(map(printable, row)) for row in rows]  # before the widths are measured
    names = [column.removesuffix(" (UTC)") for column in columns] if screen().is_terminal else [*columns]
    widths = [max(len(row[number]) for row in [names, *rows]) for number in range(len(columns))]
    fitting = _fitting(names, widths)
    lines: list[str] = [_line(names, fitting, names, is_head=True), *(_line(row, fitting, names) for row in rows)]
    left_out = [name for number, name in enumerate(names) if number not in fitting]
    return [*lines, f"  (too narrow for: {', '.join(left_out)})"] if left_out else lines


def _fitting(names: Sequence[str], widths: Sequence[int]) -> dict[int, int]:
    """Return the columns that fit on the screen, each with its width; the least important are left out, and long texts are cut."""
    kept, most = dict(enumerate(widths)), screen().width
    if most is None:
        return kept
    for number in sorted(range(1, len(names)), key=lambda number: _importance(names[number], number)):
        if len(kept) <= 2 or sum(min(width, MAX_TEXT) + 2 for width in kept.values()) <= most:
            break
        del kept[number]
    while (over := sum(width + 2 for width in kept.values()) - most) > 0:
        widest = max(kept, key=lambda number: kept[number])
        if kept[widest] <= MIN_TEXT:
            break
        kept[widest] = max(kept[widest] - over, MIN_TEXT)
    return kept


def _importance(name: str, number: int) -> tuple[bool, bool, int]:
    return (name in PROBLEMS, name not in LEAST, LEAST.index(name) if name in LEAST else -number)


def _line(cells: Sequence[str], fitting: dict[int, int], names: Sequence[str], *, is_head: bool = False) -> Line:
    texts = []
    for number, width in fitting.items():
        cell = cells[number]
        text = (cell if len(cell) <= width else f"{cell[: width - 1]}…").ljust(width)
        if number == [*fitting][-1]:
            text = text.rstrip()
        texts.append(_painted(text, "MIGRATE_HEADING" if is_head else _color(names[number], cell)))
    return Line(f"  {'  '.join(texts)}".rstrip())


def _color(name: str, cell: str) -> str:
    """Return the name of the style of a cell, or ""."""
    if name in PROBLEMS:
        return "" if cell == "-" else "ERROR"
    return COLORS.get(cell.upper(), "")


def _painted(text: str, color: str) -> str:
    style = screen().style
    return str(getattr(style, color)(text)) if style is not None and color and text.strip() else text
