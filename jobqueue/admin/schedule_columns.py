"""The columns of the list and the page of schedules, without queries, and without styles or scripts in the markup."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

from django.contrib import admin
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext, gettext_lazy, ngettext

from jobqueue import clock
from jobqueue.access.hiding import mask_of
from jobqueue.admin import figures
from jobqueue.admin.columns import badge
from jobqueue.admin.formatting import NOTHING, as_json, duration, moment
from jobqueue.admin.labels import error_text, translated
from jobqueue.admin.schedule_form import masked
from jobqueue.core.cron import MAX_INTERVAL, Timing, zone_of
from jobqueue.core.masking import mask_text
from jobqueue.core.states import Status
from jobqueue.exceptions import InvalidOption
from jobqueue.models import Schedule
from jobqueue.schedules.history import HistoryEntry, history

NEXT_TIMES = 5


def next_times(timing: Timing, now: datetime) -> list[tuple[str, str]]:
    """Return the next five times, each in the zone of the schedule and in UTC; only once if that is the zone."""
    zone = zone_of(timing.time_zone) if timing.cron else ZoneInfo("UTC")
    times = islice(timing.times(now), NEXT_TIMES)
    return [
        (f"{time.astimezone(zone):%a %Y-%m-%d %H:%M:%S %Z}", "" if zone.key == "UTC" else f"{time:%Y-%m-%d %H:%M:%S} UTC") for time in times
    ]


def timing_of(data: Mapping[str, str]) -> Timing:
    """Return the timing in a form, saved or not."""
    text = data.get("interval_seconds", "").strip()
    if text and not (text.isascii() and text.isdigit() and len(text) < 10):
        rule = f"a whole number of seconds from 1 to {MAX_INTERVAL}"
        raise InvalidOption(f"The interval is {text[:40]!r}; it must be {rule}.")
    return Timing(data.get("cron", "").strip(), int(text) if text else None, data.get("time_zone", "").strip())


@admin.display(description=gettext_lazy("schedule"), ordering="name")
def name(schedule: Schedule) -> SafeString:
    """Return the name, with a note if it comes from the code."""
    return (
        format_html('<bdi>{}</bdi> <span class="jq-note">{}</span>', schedule, gettext("in code"))
        if schedule.source == Schedule.Source.CODE
        else format_html("<bdi>{}</bdi>", schedule)
    )


@admin.display(description=gettext_lazy("task"))
def task(schedule: Schedule) -> SafeString:
    """Return the task's name, its module in small print."""
    module, _, name = schedule.task.rpartition(".")
    return format_html('<bdi class="jq-task" title="{}">{}</bdi><bdi class="jq-module">{}</bdi>', schedule.task, name, module)


@admin.display(description=gettext_lazy("when"))
def when(schedule: Schedule) -> SafeString | str:
    """Return the cron expression with its zone, or the interval."""
    if not schedule.cron:
        if schedule.interval_seconds is None:
            return gettext("never: it has neither cron nor interval")
        return gettext("every %(number)s s") % {"number": figures.count(schedule.interval_seconds)}
    return format_html('<code>{}</code> <bdi class="jq-note">{}</bdi>', schedule.cron, schedule.time_zone)


@admin.display(description=gettext_lazy("state"))
def state(schedule: Schedule) -> SafeString:
    """Return whether it is enqueued when it is due."""
    if schedule.retired_at is not None:
        return badge("canceled", gettext("Retired"), gettext("no longer declared"))
    if not schedule.enabled:
        return badge("paused", gettext("Disabled"))
    return badge("error", gettext("Failing")) if schedule.last_error else badge("success", gettext("Enabled"))


@admin.display(description=gettext_lazy("next time"), ordering="next_at")
def next_time(schedule: Schedule) -> SafeString:
    """Return the next nominal time."""
    return moment(schedule.next_at, _now(schedule)) if schedule.active and schedule.next_at else NOTHING


@admin.display(description=gettext_lazy("last time"), ordering="last_at")
def last_time(schedule: Schedule) -> SafeString:
    """Return the last nominal time, and its job."""
    if schedule.last_at is None:
        return NOTHING
    shown = moment(schedule.last_at, _now(schedule))
    if schedule.last_job_id is None:
        return shown
    address = reverse("admin:jobqueue_job_change", args=[schedule.last_job_id])
    return format_html('{} <a href="{}">{}</a>', shown, address, gettext("job %(number)s") % {"number": schedule.last_job_id})


@admin.display(description=gettext_lazy("last error"))
def error(schedule: Schedule) -> SafeString:
    """Return why it could not be enqueued."""
    text = mask_text(schedule.last_error or schedule.conflict)
    return format_html('<bdi class="jq-alarm">{}</bdi>', text) if text else NOTHING


@admin.display(description=gettext_lazy("declared in"))
def source(schedule: Schedule) -> str:
    """Return where it is declared."""
    return gettext("the code: change it there") if schedule.source == Schedule.Source.CODE else gettext("the admin")


@admin.display(description=gettext_lazy("next times"))
def upcoming(schedule: Schedule) -> SafeString | str:
    """Return the next five times, in its zone and in UTC; none for a schedule that is not active."""
    if not schedule.active:
        return gettext("none: it is disabled") if schedule.retired_at is None else gettext("none: the code no longer declares it")
    try:
        times = next_times(schedule.timing, _now(schedule))
    except InvalidOption as error:
        return error_text(error)
    return format_html_join("", "<div>{}{}</div>", ((local, f" = {utc}" if utc else "") for local, utc in times))


@admin.display(description=gettext_lazy("target"))
def target(schedule: Schedule) -> SafeString | str:
    """Return the target with masked secrets."""
    return mask_of(schedule)(schedule.target) or NOTHING


@admin.display(description=gettext_lazy("args"))
def args(schedule: Schedule) -> SafeString:
    """Return the positional arguments with masked secrets."""
    return format_html('<pre class="jq-pre">{}</pre>', as_json(masked(schedule)[0]))


@admin.display(description=gettext_lazy("kwargs"))
def kwargs(schedule: Schedule) -> SafeString:
    """Return the keyword arguments with masked secrets."""
    return format_html('<pre class="jq-pre">{}</pre>', as_json(masked(schedule)[1]))


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """A nominal time, or some that got no job, on the page of a schedule."""

    at: SafeString
    job_id: int | None
    outcome: SafeString | str
    late: SafeString | str


def history_rows(user: Any, schedule: Schedule) -> list[HistoryRow]:
    """Return the history of a schedule, the newest first."""
    return [_history_row(entry) for entry in history(user, schedule)]


def _history_row(entry: HistoryEntry) -> HistoryRow:
    if entry.missed:
        text = ngettext("%(number)s time without a job", "%(number)s times without a job", entry.missed)
        return HistoryRow(moment(entry.nominal_at), None, badge("paused", gettext("Missed"), text % {"number": entry.missed}), NOTHING)
    labels = dict(Status.choices)
    kind = entry.status.lower() if entry.status in labels else "canceled"
    outcome = badge(kind, translated(labels.get(entry.status, entry.status))) if entry.status else NOTHING
    return HistoryRow(moment(entry.nominal_at), entry.job_id, outcome, duration(entry.late_seconds))


def _now(schedule: Schedule) -> datetime:
    now: datetime = getattr(schedule, "now", None) or clock.now()
    return now
