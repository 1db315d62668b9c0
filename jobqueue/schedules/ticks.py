"""The ticks of schedules, which create the jobs, and the operators' changes of schedules.

A tick is one transaction under the lock of the schedule's row. It writes the tick row of the nominal time, its job,
and the next time, all or nothing. So if two workers both believe that they lead, the second finds the next time
moved, whatever their clocks show. If the time was moved back (by another expression, or by a clock), the tick row
still exists, so the nominal time gets no second job.

The caller passes the function that creates a job of a task (`Enqueue`), because it is in a higher layer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NoReturn

from django.db import IntegrityError

from jobqueue.access.hiding import mask_of
from jobqueue.core import cron
from jobqueue.core.masking import mask_text
from jobqueue.core.texts import clean, exception_summary, safe_repr
from jobqueue.db import Now, overview
from jobqueue.exceptions import InvalidOption
from jobqueue.lifecycle import wakeup
from jobqueue.models import Job, Schedule, ScheduleTick
from jobqueue.schedules.plans import plan

RETRY_SECONDS = 30.0
AT_ONCE = 100  # the maximum of jobs that one transaction creates
KEEP_TICKS = timedelta(days=3)

Enqueue = Callable[[Schedule, datetime | None], int]
"""Enqueue the job of a schedule for a nominal time (None: a run outside of the schedule, now); return its number."""

# Columns that each change of the definition also changes.
ANEW: dict[str, Any] = {"retry_at": None, "last_error": ""}


@dataclass(frozen=True, slots=True)
class Ticked:
    """The result of a tick: the number of jobs that it created, and whether more are due."""

    jobs: int = 0
    more: bool = False


@dataclass(frozen=True, slots=True)
class ScheduleAnswer:
    """The result of a request: whether the schedule changed, and its state now."""

    name: str
    changed: bool
    enabled: bool
    next_at: datetime | None


@dataclass(frozen=True, slots=True)
class ScheduleState:
    """The state of one schedule, without arguments."""

    name: str
    source: str
    task: str
    when: str
    time_zone: str
    state: str
    next_at: datetime | None
    last_at: datetime | None
    last_job_id: int | None
    last_error: str


# The tick


def tick(schedule_id: int, now: datetime, enqueue: Enqueue, at_once: int | None = None) -> Ticked:
    """Create up to `at_once` jobs of one schedule that are due at `now`, the database's time, and set its next time.

    Raise if the jobs cannot be created.
    """
    with Job.objects.database.atomic():
        schedule = Schedule.objects.current.due(now).unlocked().filter(pk=schedule_id).first()
        if schedule is None:  # another worker has locked it, or has done it
            return Ticked()
        timing = schedule.timing
        if schedule.next_at is None or schedule.next_at > now:  # no time was computed yet, or by a clock that was ahead
            _move(schedule, **plan(schedule, now), last_at=None)
            return Ticked()
        due = cron.due(timing, schedule.next_at, now, schedule.missed, min(max(schedule.missed_limit, 1), cron.MAX_MISSED))
        most = at_once or AT_ONCE
        wanted, later = due[:most], due[most:]
        job_ids = [job_id for nominal in wanted if (job_id := _job(schedule, nominal, enqueue)) is not None]
        changes: dict[str, Any] = {"last_at": wanted[-1]} if wanted else {}
        if job_ids:
            changes["last_job_id"] = job_ids[-1]
        _move(schedule, **(plan(schedule, wanted[-1], later[0]) if later else plan(schedule, now)), **changes)
    return Ticked(len(job_ids), more=bool(later))


def _job(schedule: Schedule, nominal: datetime, enqueue: Enqueue) -> int | None:
    ticks = ScheduleTick.objects.current
    if ticks.filter(schedule=schedule, nominal_at=nominal).exists():
        return None
    job_id = enqueue(schedule, nominal)
    # If the row exists after all, its constraint rolls back the whole transaction with the job.
    ticks.bulk_create([ScheduleTick(schedule=schedule, nominal_at=nominal, job_id=job_id)])
    return job_id


def _move(schedule: Schedule, **changes: Any) -> None:
    Schedule.objects.current.filter(pk=schedule.pk).update(**ANEW, **changes)


def set_aside(schedule_id: int, now: datetime, error: BaseException) -> bool:
    """Record on a schedule why it could not be enqueued, and when to retry; return whether the reason is new."""
    with Job.objects.database.atomic():
        schedule = Schedule.objects.current.unlocked().filter(pk=schedule_id).first()
        if schedule is None:
            return False
        text = exception_summary(error, mask_of(schedule))
        Schedule.objects.current.filter(pk=schedule_id).update(last_error=text, retry_at=now + timedelta(seconds=RETRY_SECONDS))
    return text != schedule.last_error


def forget_ticks(now: datetime, limit: int) -> int:
    """Delete up to `limit` ticks whose times cannot become due again, the oldest first; return how many."""
    with Job.objects.database.atomic():
        old = ScheduleTick.objects.current.forgettable(now, KEEP_TICKS).order_by("nominal_at")
        ids = list(old.select_for_update(skip_locked=True, of=("self",)).values_list("pk", flat=True)[:limit])
        if not ids:
            return 0
        return ScheduleTick.objects.current.filter(pk__in=ids).delete()[0]


# Changes by operators


def enable_schedule(name: str) -> ScheduleAnswer:
    """Enable a schedule from its next time on; times while it was disabled do not count as missed."""
    return _decide(name, enabled=True)


def disable_schedule(name: str) -> ScheduleAnswer:
    """Disable a schedule until it is enabled again; its existing jobs continue."""
    return _decide(name, enabled=False)


def _decide(name: str, *, enabled: bool) -> ScheduleAnswer:
    with Job.objects.database.atomic():
        schedule = _locked(name)
        changed = schedule.enabled != enabled
        if changed:
            planned = _planned(schedule) if enabled else {}
            _move(schedule, enabled=enabled, **planned, changed_at=Now())
            schedule.next_at = planned.get("next_at")
            wakeup.duties_changed()
    return ScheduleAnswer(name, changed, enabled, schedule.next_at if enabled else None)


def create(schedule: Schedule) -> bool:
    """Write a new schedule, whose times count from now; return False if its name is taken."""
    try:
        with Job.objects.database.atomic():
            for name, value in _planned(schedule).items():
                setattr(schedule, name, value)
            schedule.save(force_insert=True, using=Job.objects.database.alias)
            wakeup.duties_changed()
    except IntegrityError:
        if Schedule.objects.current.filter(name=schedule.name).exists():
            return False
        raise
    return True


def define(schedule: Schedule, names: Sequence[str], *, wait: bool = True) -> bool:
    """Write only these fields of an existing schedule; if its timing changes, its times count from now. Return whether it changed.

    Concurrent writes of a leader stay. Without `wait`, raise `Schedule.DoesNotExist` if the row is locked.
    """
    with Job.objects.database.atomic():
        rows = Schedule.objects.current
        stored = (rows.locked() if wait else rows.unlocked()).get(pk=schedule.pk)
        changed = {name: getattr(schedule, name) for name in names if getattr(stored, name) != getattr(schedule, name)}
        if changed:
            if schedule.timing != stored.timing or (schedule.active and not stored.active):
                changed |= _planned(schedule)
            _move(stored, **changed, changed_at=Now())
            wakeup.duties_changed()
    return bool(changed)


def retire(name: str) -> None:
    """Retire a schedule of the code; raise `Schedule.DoesNotExist` if it is locked, or retired or deleted already."""
    with Job.objects.database.atomic():
        rows = Schedule.objects.current.filter(name=name, source=Schedule.Source.CODE, retired_at__isnull=True)
        schedule = rows.unlocked().only("pk").get()
        Schedule.objects.current.filter(pk=schedule.pk).update(retired_at=Now())


def note_conflict(schedule_id: int, text: str) -> int:
    """Write which other service declares a schedule; return how many rows changed."""
    with Job.objects.database.atomic():
        return Schedule.objects.current.filter(pk=schedule_id).update(conflict=text)


def remove(schedule: Schedule) -> None:
    """Delete a schedule with its ticks; its jobs stay."""
    with Job.objects.database.atomic():
        # The row is locked first, so that no leader creates a tick while the ticks are deleted.
        for row in Schedule.objects.current.locked().filter(pk=schedule.pk):
            row.delete()


def run_now(name: str, enqueue: Enqueue) -> int:
    """Create a job of a schedule now, even if it is disabled; its times do not change. Return the job's number."""
    with Job.objects.database.atomic():
        return enqueue(_found(name), None)


def _planned(schedule: Schedule) -> dict[str, Any]:
    now = overview.clock(Job.objects.database)
    schedule.timing.check(now)
    return plan(schedule, now)


def _locked(name: str) -> Schedule:
    schedule = Schedule.objects.current.locked().filter(name=_checked(name)).first()
    return schedule or _missing(name)


def _found(name: str) -> Schedule:
    return Schedule.objects.current.filter(name=_checked(name)).first() or _missing(name)


def _checked(name: str) -> str:
    return name if isinstance(name, str) and clean(name) == name else _missing(name)


def _missing(name: Any) -> NoReturn:
    raise InvalidOption(f"There is no schedule {safe_repr(name)}. 'manage.py jobqueue schedules' lists them.")


def schedule_states() -> list[ScheduleState]:
    """Return all schedules with their next and last times, by name."""
    schedules = Schedule.objects.current.order_by("name")
    return [
        ScheduleState(
            name=str(schedule),
            source=schedule.source,
            task=schedule.task,
            when=schedule.cron or f"every {schedule.interval_seconds} s",
            time_zone=schedule.time_zone if schedule.cron else "",
            state="retired" if schedule.retired_at else "enabled" if schedule.enabled else "disabled",
            next_at=schedule.next_at if schedule.active else None,
            last_at=schedule.last_at,
            last_job_id=schedule.last_job_id,
            last_error=mask_text(schedule.last_error or schedule.conflict),
        )
        for schedule in schedules
    ]
