"""The columns of the list and the page of schedules, without queries, and without styles or scripts in the markup."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from itertools import islice
from zoneinfo import ZoneInfo

from django.contrib import admin
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from jobqueue import clock
from jobqueue.access.hiding import mask_of
from jobqueue.admin.columns import badge
from jobqueue.admin.formatting import NOTHING, as_json, moment
from jobqueue.admin.schedule_form import masked
from jobqueue.core.cron import MAX_INTERVAL, Timing, zone_of
from jobqueue.core.masking import mask_text
from jobqueue.exceptions import InvalidOption
from jobqueue.models import Schedule

NEXT_TIMES = 5


def next_times(timing: Timing, now: datetime) -> list[tuple[str, str]]:
    """Return the next five times, each in the zone of the schedule and in UTC; only once if that is the zone."""
    zone = zone_of(timing.time_zone) if timing.cron else ZoneInfo("UTC")
    found = islice(timing.times(now), NEXT_TIMES)
    return [
        (f"{one.astimezone(zone):%a %Y-%m-%d %H:%M:%S %Z}", "" if zone.key == "UTC" else f"{one:%Y-%m-%d %H:%M:%S} UTC") for one in found
    ]


def timing_of(data: Mapping[str, str]) -> Timing:
    """Return the timing in a form, saved or not."""
    text = data.get("interval_seconds", "").strip()
    if text and not (text.isascii() and text.isdigit() and len(text) < 10):
        rule = f"a whole number of seconds from 1 to {MAX_INTERVAL}"
        raise InvalidOption(f"The interval is {text[:40]!r}; it must be {rule}.")
    return Timing(data.get("cron", "").strip(), int(text) if text else None, data.get("time_zone", "").strip())


@admin.display(description="schedule", ordering="name")
def name(one: Schedule) -> SafeString | str:
    """Return the name, with a note if it comes from the code."""
    return format_html('{} <span class="jq-note">in code</span>', one) if one.source == Schedule.Source.CODE else str(one)


@admin.display(description="task")
def task(one: Schedule) -> SafeString:
    """Return the task's name, its module in small print."""
    module, _, name = one.task.rpartition(".")
    return format_html('<span class="jq-task" title="{}">{}</span><span class="jq-module">{}</span>', one.task, name, module)


@admin.display(description="when")
def when(one: Schedule) -> SafeString | str:
    """Return the cron expression with its zone, or the interval."""
    if not one.cron:
        return "never: it has neither cron nor interval" if one.interval_seconds is None else f"every {one.interval_seconds:,} s"
    return format_html('<code>{}</code> <span class="jq-note">{}</span>', one.cron, one.time_zone)


@admin.display(description="state")
def state(one: Schedule) -> SafeString:
    """Return whether it is enqueued when it is due."""
    if one.retired_at is not None:
        return badge("canceled", "Retired", "no longer declared")
    if not one.enabled:
        return badge("paused", "Disabled")
    return badge("error", "Failing") if one.last_error else badge("success", "Enabled")


@admin.display(description="next time", ordering="next_at")
def next_time(one: Schedule) -> SafeString:
    """Return the next nominal time."""
    return moment(one.next_at, _now(one)) if one.active and one.next_at else NOTHING


@admin.display(description="last time", ordering="last_at")
def last_time(one: Schedule) -> SafeString:
    """Return the last nominal time, and its job."""
    if one.last_at is None:
        return NOTHING
    shown = moment(one.last_at, _now(one))
    if one.last_job_id is None:
        return shown
    address = reverse("admin:jobqueue_job_change", args=[one.last_job_id])
    return format_html('{} <a href="{}">job {}</a>', shown, address, one.last_job_id)


@admin.display(description="last error")
def error(one: Schedule) -> SafeString:
    """Return why it could not be enqueued."""
    text = mask_text(one.last_error or one.conflict)
    return format_html('<span class="jq-alarm">{}</span>', text) if text else NOTHING


@admin.display(description="declared in")
def source(one: Schedule) -> str:
    """Return where it is declared."""
    return "the code: change it there" if one.source == Schedule.Source.CODE else "the admin"


@admin.display(description="next times")
def upcoming(one: Schedule) -> SafeString | str:
    """Return the next five times, in its zone and in UTC; none for a schedule that is not active."""
    if not one.active:
        return "none: it is disabled" if one.retired_at is None else "none: the code no longer declares it"
    try:
        times = next_times(one.timing, _now(one))
    except InvalidOption as error:
        return str(error)
    return format_html_join("", "<div>{}{}</div>", ((local, f" = {utc}" if utc else "") for local, utc in times))


@admin.display(description="target")
def target(one: Schedule) -> SafeString | str:
    """Return the target with masked secrets."""
    return mask_of(one)(one.target) or NOTHING


@admin.display(description="args")
def args(one: Schedule) -> SafeString:
    """Return the positional arguments with masked secrets."""
    return format_html('<pre class="jq-pre">{}</pre>', as_json(masked(one)[0]))


@admin.display(description="kwargs")
def kwargs(one: Schedule) -> SafeString:
    """Return the keyword arguments with masked secrets."""
    return format_html('<pre class="jq-pre">{}</pre>', as_json(masked(one)[1]))


def _now(one: Schedule) -> datetime:
    now: datetime = getattr(one, "now", None) or clock.now()
    return now
