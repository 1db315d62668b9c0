"""Charts of samples over time, for the template ``chart.html``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import gettext as _

from jobqueue.admin import charts, figures
from jobqueue.admin.charts import Line, Mark
from jobqueue.core.loads import RINGS, Load
from jobqueue.core.masking import mask_text
from jobqueue.insight.fleet import Member
from jobqueue.insight.histories import Histories

MAX_MARKS = 9
TICKS = 5
MINUTE = 60

TimedMark = tuple[Mark, str]


def throughput(loads: Histories, timed_marks: Sequence[TimedMark] = ()) -> dict[str, Any]:
    """Return the chart of what came, ended and failed per second."""
    points = loads.points
    lines = [
        Line(_("In"), "jq-in", loads.rates(load.enqueued for load in points)),
        Line(_("Ended"), "jq-out", loads.rates(load.ended for load in points)),
        Line(_("Failed"), "jq-fail", loads.rates(load.failed for load in points)),
    ]
    return _chart(loads, lines, _("Jobs per second: in, ended, failed"), timed_marks)


def depth(loads: Histories, timed_marks: Sequence[TimedMark] = ()) -> dict[str, Any]:
    """Return the chart of what waited and ran."""
    points = loads.points
    lines = [
        Line(_("Waiting"), "jq-in", [load.queued for load in points]),
        Line(_("Running"), "jq-out", [load.running for load in points]),
    ]
    return _chart(loads, lines, _("Jobs that wait and run"), timed_marks)


def marks(loads: Histories, members: Iterable[Member] | None, pauses: Iterable[tuple[str, datetime]]) -> list[TimedMark]:
    """Return the starts of the first worker of each release, and of the pauses that last, within the range."""
    starts: dict[str, datetime] = {}
    for member in members or []:
        if member.release:
            starts[member.release] = min(starts.get(member.release, member.started_at), member.started_at)
    events = [
        *((at.timestamp(), _("release %(name)s") % {"name": mask_text(release)}, "jq-release") for release, at in starts.items()),
        *((at.timestamp(), _("queue %(name)s paused") % {"name": mask_text(name)}, "jq-pause") for name, at in pauses),
    ]
    length = loads.number * loads.step
    return [
        (Mark(min((at - loads.begins) / length, 1.0), text, css_class), _clock(loads, at))
        for at, text, css_class in sorted(events)
        if at >= loads.begins
    ][-MAX_MARKS:]


def _chart(loads: Histories, lines: list[Line], text: str, timed_marks: Sequence[TimedMark]) -> dict[str, Any]:
    times = [_clock(loads, loads.begins + point * loads.step) for point in range(loads.number)]
    numbers = list(zip(*([figures.rate(value) for value in line.values] for line in lines), strict=True))
    names = [line.name for line in lines]
    labels = [
        f"{time}: {', '.join(f'{name} {value}' for name, value in zip(names, values, strict=True))}"
        for time, values in zip(times, numbers, strict=True)
    ]
    busy: list[Load] = loads.points
    return {
        "svg": charts.time_chart(lines, labels, text, [mark for mark, _at in timed_marks]),
        "title": text,
        "lines": lines,
        "top": figures.plain(charts.maximum(lines)),
        "axis": [_clock(loads, loads.begins + tick * loads.number * loads.step // (TICKS - 1), is_axis=True) for tick in range(TICKS)],
        "marks": timed_marks,
        "table": [(time, values) for time, values, load in zip(times, numbers, busy, strict=True) if load.weight][::-1],
    }


def _clock(loads: Histories, seconds: float, *, is_axis: bool = False) -> str:
    """Return a time of the range, with the date if the range is longer than a day, with seconds if the points are shorter than a minute."""
    local = timezone.localtime(datetime.fromtimestamp(seconds, UTC))
    if loads.number * loads.step > RINGS["24h"].kept:
        day = date_format(local, "MONTH_DAY_FORMAT")
        return day if is_axis else f"{day} {local:%H:%M}"
    return f"{local:%H:%M}" if is_axis or loads.step >= MINUTE else f"{local:%H:%M:%S}"
