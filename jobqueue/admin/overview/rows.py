"""The rows of the Overview's tables, as texts and links."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from jobqueue import clock
from jobqueue.admin import charts, columns, figures
from jobqueue.admin.formatting import NOTHING, ago, duration
from jobqueue.admin.labels import translated
from jobqueue.admin.pages import Pages
from jobqueue.core.masking import mask_text
from jobqueue.core.texts import shorten
from jobqueue.insight.error_kinds import ErrorKind, summary
from jobqueue.insight.fleet import Member
from jobqueue.insight.histories import NOW_SECONDS, Histories, History
from jobqueue.insight.queues import QueueState
from jobqueue.models import Schedule

MAX_QUEUES = 20
MAX_KINDS = 8
MAX_TEXT = 300
LEAST_DEPTH = 10
FAILING_SHARE = 0.05  # of the jobs of a task


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A queue: its depth over the range, what waits and runs now, the rates of the last minutes, and where this leads."""

    name: str
    url: str
    badge: str
    spark: SafeString | str
    waiting: str
    waiting_url: str
    running: str
    running_url: str
    oldest: str
    wait_p95: str
    enqueued: str
    ended: str
    failed: str
    trend: str
    trend_class: str


def queue_rows(pages: Pages, states: Iterable[QueueState], loads: Histories | None) -> list[QueueRow]:
    """Return the busiest queues by name; `loads` is None for a user who may not see samples."""
    known = {state.name: state for state in states}
    by_name = loads.by_name if loads is not None else {}
    names = sorted({*known, *by_name}, key=lambda name: _weight(known.get(name), by_name.get(name)), reverse=True)[:MAX_QUEUES]
    return [_queue_row(pages, known.get(name) or QueueState(name, False, None, 0, 0, None), by_name.get(name)) for name in sorted(names)]


def _weight(state: QueueState | None, history: History | None) -> tuple[bool, int, int]:
    return (
        state is not None and (state.paused or state.max_running is not None),
        state.queued + state.running if state is not None else 0,
        history.total.weight if history is not None else 0,
    )


def _queue_row(pages: Pages, state: QueueState, history: History | None) -> QueueRow:
    now = history.now if history is not None else None
    rates = (
        [figures.rate(number / NOW_SECONDS) for number in (now.enqueued, now.ended, now.failed)] if now is not None else [str(NOTHING)] * 3
    )
    trend, trend_class = _trend(state, history)
    name = mask_text(state.name)
    depths = [load.queued for load in history.points] if history is not None else []
    spoken = _("Waiting jobs of %(queue)s: at most %(number)s") % {"queue": name, "number": figures.count(max(depths, default=0))}
    return QueueRow(
        name=name,
        url=pages.url("jobqueue_queue_change", state.name),
        badge=columns.badge("paused", _("Paused")) if state.paused else "",
        spark=charts.sparkline(depths, spoken, least=LEAST_DEPTH) if depths else NOTHING,
        waiting=figures.count(state.queued, more=state.queued_is_capped),
        waiting_url=pages.jobs(queue=state.name, status="QUEUED") if state.queued else "",
        running=figures.count(state.running),
        running_url=pages.jobs(queue=state.name, status="RUNNING") if state.running else "",
        oldest=duration(state.oldest_queued_seconds) if state.oldest_queued_seconds is not None else NOTHING,
        wait_p95=figures.quantile(history.total.waits, 0.95) if history is not None else NOTHING,
        enqueued=rates[0],
        ended=rates[1],
        failed=rates[2],
        trend=trend,
        trend_class=trend_class,
    )


def _trend(state: QueueState, history: History | None) -> tuple[str, str]:
    """Return where the depth of a queue leads, and a CSS class."""
    if not state.queued or history is None:
        return "", ""
    if state.paused:
        return _("paused"), "jq-warn"
    growth = history.growth_per_second
    if growth > 0:
        return _("grows by %(number)s per minute") % {"number": figures.number(growth * 60, 0 if growth > 0.2 else 1)}, "jq-alarm"
    if growth < 0:
        return _("empties in %(duration)s") % {"duration": duration(state.queued / -growth)}, "jq-good"
    return _("steady"), ""


@dataclass(frozen=True, slots=True)
class KindRow:
    """A kind of errors."""

    number: str
    url: str
    task: str
    error: str
    last_at: str
    newest_id: int
    newest_url: str


def kind_rows(pages: Pages, kinds: Iterable[ErrorKind]) -> list[KindRow]:
    """Return kinds of errors, each with a link to exactly its jobs if there is such a page, and to the newest job."""
    return [
        KindRow(
            number=figures.count(kind.number, more=kind.number_is_capped),
            url=pages.url("jobqueue_job_error", kind.key),
            task=mask_text(kind.task),
            error=shorten(summary(kind.exception, kind.message.partition("\n")[0]), MAX_TEXT),
            last_at=ago(kind.last_at, clock.now()) if kind.last_at is not None else NOTHING,
            newest_id=kind.newest_id,
            newest_url=pages.url("jobqueue_job_change", kind.newest_id),
        )
        for kind in kinds
    ]


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A task and its runs over the range."""

    name: str
    module: str
    url: str
    ended: str
    per_second: str  # of the last minutes
    wait_p95: str
    p50: str
    p95: str
    longest: str
    share: int  # of the run time of all tasks, in percent
    failed: str
    fails: bool


def task_rows(pages: Pages, tasks: Iterable[History], run_seconds: float) -> list[TaskRow]:
    """Return tasks with their run times."""
    return [_task_row(pages, task, run_seconds) for task in tasks]


def _task_row(pages: Pages, history: History, run_seconds: float) -> TaskRow:
    total, name = history.total, mask_text(history.name)
    module, _dot, short = name.rpartition(".")
    return TaskRow(
        name=short,
        module=module,
        url=pages.url("jobqueue_job_task", history.name),
        ended=figures.count(total.ended),
        per_second=figures.rate(history.now.ended / NOW_SECONDS),
        wait_p95=figures.quantile(total.waits, 0.95),
        p50=figures.quantile(total.runs, 0.5),
        p95=figures.quantile(total.runs, 0.95),
        longest=figures.longest(total.runs),
        share=round(100 * total.run_seconds / run_seconds) if run_seconds else 0,
        failed=figures.percent(total.failed / total.ended) if total.ended else NOTHING,
        fails=total.failed > FAILING_SHARE * total.ended,
    )


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """A worker with a trouble."""

    process: str
    url: str
    badge: SafeString
    text: str


@dataclass(frozen=True, slots=True)
class ReleaseRow:
    """The live workers of a release."""

    release: str
    workers: str
    running: str
    slots: str


def worker_rows(pages: Pages, members: Iterable[Member]) -> list[WorkerRow]:
    """Return the workers that are silent, drained, ending or in trouble."""
    rows = []
    for member in members:
        if not member.is_alive:
            badge = columns.badge("silent", _("Silent"))
            text = _("last heartbeat %(duration)s ago") % {"duration": duration(member.silent_seconds)}
        elif member.troubles:
            badge, text = columns.badge("error", _("Trouble")), "; ".join(map(translated, member.troubles))
        elif member.state != "RUNNING":
            badge, text = columns.badge("draining", translated(member.state.capitalize())), _("takes no more jobs")
        else:
            continue
        rows.append(WorkerRow(member.process, pages.url("jobqueue_worker_change", member.id), badge, text))
    return rows


def release_rows(members: Iterable[Member]) -> list[ReleaseRow]:
    """Return the releases of the live workers."""
    by_release: dict[str, list[Member]] = {}
    for member in members:
        if member.is_alive:
            by_release.setdefault(member.release, []).append(member)
    return [
        ReleaseRow(
            release,
            figures.count(len(found)),
            figures.count(sum(member.running for member in found)),
            figures.count(sum(member.slots for member in found)),
        )
        for release, found in sorted(by_release.items(), reverse=True)
    ]


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """A schedule and its next time."""

    name: str
    url: str
    task: str
    when: str
    at: Any
    fails: bool


def schedule_rows(pages: Pages, schedules: Iterable[Any]) -> list[ScheduleRow]:
    """Return the schedules with the time until each is due."""
    return [
        ScheduleRow(
            name=str(row),
            url=pages.url("jobqueue_schedule_change", row.pk),
            task=mask_text(row.task),
            when=_("in %(duration)s") % {"duration": duration((row.next_at - row.now).total_seconds())}
            if row.next_at > row.now
            else _("now"),
            at=row.next_at,
            fails=_fails(row),
        )
        for row in schedules
    ]


def _until(seconds: float) -> str:
    return _("in %(duration)s") % {"duration": duration(seconds)} if seconds > 0 else _("now")


def _fails(row: Schedule) -> bool:
    return bool(row.last_error) and row.retry_at is not None
