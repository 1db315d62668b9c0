"""The next time of a schedule, and the data from which it was computed.

`planned` is the timing and the version of the time zone rules; `planned_at` is the first time after `counted_from`.
So one comparison finds a timing that was changed in any way, even by SQL, and new time zone rules. A `next_at` that
differs from `planned_at` was set by hand: it is not changed.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

from jobqueue.core import cron
from jobqueue.managers.schedules import ScheduleQuerySet
from jobqueue.models import Job, Schedule

PLAN = ("cron", "interval_seconds", "time_zone", "next_at", "planned_at", "counted_from")


def plan(schedule: Schedule, behind: datetime, next_at: datetime | None = None) -> dict[str, Any]:
    """Return the columns for the next time of a schedule: its first time after a moment, or `next_at`."""
    next_time = schedule.timing.after(behind) if next_at is None else next_at
    return {"next_at": next_time, "planned_at": next_time, "counted_from": behind, "planned": _written(schedule)}


def _written(schedule: Schedule) -> str:
    return schedule.timing.text(cron.rules_version())


def outdated(service: str, now: datetime, limit: int, aside: Collection[int] = ()) -> list[tuple[int, str]]:
    """Return the schedules (key and name) whose next time was computed from another timing or other rules, without those `aside`."""
    rows = Schedule.objects.current.active().of(service).ready(now).planned_otherwise(cron.rules_version()).exclude(pk__in=aside)
    return list(rows.order_by("pk").values_list("pk", "name")[:limit])


def moved(service: str) -> list[tuple[int, str]]:
    """Return the schedules (key and name) whose next time is different under the time zone rules of this process."""
    rows = Schedule.objects.current.active().of(service).filter(counted_from__isnull=False).only("name", *PLAN)
    return [(row.pk, row.name) for row in rows.iterator(1000) if _is_moved(row)]


def _is_moved(schedule: Schedule) -> bool:
    try:
        return bool(_recounted(schedule) != schedule.next_at)
    except Exception:  # noqa: BLE001 - a timing that cannot be read: the tick that is due reports it
        return False


def _recounted(schedule: Schedule) -> datetime | None:
    """Return the next time by the current rules, counted from the same moment as before."""
    planned: datetime | None = schedule.next_at
    if schedule.counted_from is None or planned != schedule.planned_at:
        return planned
    return schedule.timing.after(schedule.counted_from)


def replan(schedule_id: int, now: datetime) -> bool:
    """Compute the next time of a schedule again if its timing or the rules have changed; return whether it was written.

    A changed timing counts from now. With changed rules, the time counts from the last one. A
    time that the new rules move into the past counts as missed.
    """
    with Job.objects.database.atomic():
        schedule = Schedule.objects.current.active().unlocked().filter(pk=schedule_id).first()
        if schedule is None:
            return False
        if schedule.planned and schedule.timing.text("") != schedule.planned.rpartition("|")[0] + "|":
            changes = plan(schedule, now)
        else:
            next_at, planned_at = _recounted(schedule), schedule.planned_at
            # Otherwise it was set by hand: the two times must still differ at the next change of the rules.
            if schedule.next_at == planned_at:
                planned_at = next_at
            changes = {"next_at": next_at, "planned_at": planned_at, "planned": _written(schedule)}
        return bool(Schedule.objects.current.filter(pk=schedule.pk).update(retry_at=None, last_error="", **changes))


def to_forget(service: str) -> ScheduleQuerySet[Schedule]:
    """Return the schedules that are not enqueued but have a next time."""
    return Schedule.objects.current.of(service).inactive().filter(next_at__isnull=False)


def forget_inactive(rows: ScheduleQuerySet[Schedule], limit: int) -> int:
    """Clear the next times of schedules that are not enqueued: when one is enabled again, its times count from then."""
    if not rows.exists():
        return 0
    with Job.objects.database.atomic():
        ids = list(rows.unlocked().values_list("pk", flat=True)[:limit])
        return Schedule.objects.current.filter(pk__in=ids).update(next_at=None, planned_at=None, counted_from=None, planned="")
