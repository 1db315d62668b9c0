"""Times, numbers and names in the sentences of `insight.why`."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from jobqueue.core import masking


def clock(when: datetime, now: datetime) -> str:
    """Return a time of day in the project's time zone, with the date unless it is today."""
    local, today = timezone.localtime(when), timezone.localtime(now)
    text = f"{local:%H:%M:%S}" if local.date() == today.date() else f"{local:%Y-%m-%d %H:%M}"
    return f"{text} {local.tzname()}"


def about(delta: timedelta) -> str:
    """Return a duration in its largest unit."""
    seconds = delta.total_seconds()
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def times(number: int) -> str:
    """Return a number of times as text."""
    return "once" if number == 1 else f"{number} times"


def queue(job: Any) -> str:
    """Return the name of a job's queue as shown."""
    return repr(masking.mask_text(job.queue))


def busy(slots: int, where: str) -> str:
    """Return a text that says that all slots of a place were busy."""
    return f"the only slot of {where} was busy" if slots == 1 else f"all {slots} slots of {where} were busy"
