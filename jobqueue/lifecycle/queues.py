"""Pause, resume, limit and forget queues.

A pause or a limit is stored in a row, so it survives restarts and applies to every worker on every machine.
Workers read the rows every second, and immediately when they are notified of a change.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q

from jobqueue import clock
from jobqueue.core import moments
from jobqueue.core.masking import mask_text
from jobqueue.core.sentences import sentence
from jobqueue.core.texts import clean, safe_repr
from jobqueue.db import Now
from jobqueue.exceptions import InvalidOption
from jobqueue.lifecycle import wakeup
from jobqueue.models import Job, Queue

MAX_NAME = 200
MAX_LIMIT = 2**31 - 1
_SECONDS = re.compile(r"[0-9]{1,12}(\.[0-9]{1,6})?")


@dataclass(frozen=True, slots=True)
class QueueAnswer:
    """The result of a request to a queue: whether it changed anything, and the state of the queue now."""

    name: str
    changed: bool
    paused: bool
    max_running: int | None
    paused_until: datetime | None = None


def pause_queue(name: str, *, until: datetime | timedelta | None = None) -> QueueAnswer:
    """Stop starting jobs of a queue; running jobs continue.

    The pause ends at `until`, a time or a timedelta from now on, if it is given; otherwise with `resume_queue`.
    """
    if until is None:
        return _decide(name, Q(paused=True, paused_until__isnull=True), paused=True, paused_until=None)
    if not isinstance(until, datetime | timedelta) or (isinstance(until, timedelta) and until <= timedelta()):
        raise InvalidOption(f"until is {safe_repr(until)}; it must be a datetime, or a timedelta above 0, counted from now.")
    moments.check_ahead(until, "until")
    if isinstance(until, datetime) and clock.aware(until) <= clock.now():
        raise InvalidOption(
            f"until is {safe_repr(until)}, which is in the past; it must be a time in the future. Leave it out to pause without an end."
        )
    end = clock.aware(until) if isinstance(until, datetime) else Now() + until
    return _decide(name, Q(paused=True, paused_until=end), paused=True, paused_until=end)


def until_of(text: str) -> datetime | timedelta:
    """Return the end of a pause from the text of an operator: a time in ISO 8601, or a number of seconds from now on."""
    try:
        until = timedelta(seconds=float(text)) if _SECONDS.fullmatch(text) else clock.aware(datetime.fromisoformat(text))
        ahead = until > timedelta() if isinstance(until, timedelta) else until > clock.now()
    except (ValueError, OverflowError):
        ahead = False
    if not ahead:
        rule = "it must be a time in the future, such as 2030-01-31T18:00:00Z, or a number of seconds above 0, counted from now"
        raise InvalidOption(f"until is {safe_repr(text)}; {rule}.")
    moments.check_ahead(until, "until")
    return until


def resume_queue(name: str) -> QueueAnswer:
    """Start jobs of a queue again."""
    return _decide(name, Q(paused=False), paused=False, paused_until=None)


def end_pauses() -> int:
    """Resume the queues whose pause has reached its end, except those that another transaction has locked; return how many."""
    with Job.objects.database.atomic():
        over = Queue.objects.current.over().select_for_update(skip_locked=True, no_key=True).order_by("pk")
        names = list(over.values_list("pk", flat=True))
        if names:
            Queue.objects.current.filter(pk__in=names).update(paused=False, paused_until=None, changed_at=Now())
            wakeup.queues_changed()
    return len(names)


def limit_queue(name: str, max_running: int | None) -> QueueAnswer:
    """Run at most `max_running` jobs of a queue at the same time, over all workers. None removes the limit; 0 starts no job."""
    is_number = isinstance(max_running, int) and not isinstance(max_running, bool)
    if max_running is not None and not (is_number and 0 <= max_running <= MAX_LIMIT):
        raise InvalidOption(
            sentence(
                "max_running is %(value)s; it must be a whole number from 0 to %(most)s, or None for no limit.",
                value=safe_repr(max_running),
                most=str(MAX_LIMIT),
            )
        )
    return _decide(name, Q(max_running__isnull=True) if max_running is None else Q(max_running=max_running), max_running=max_running)


def check_name(name: Any) -> None:
    """Reject a name that no queue can have."""
    if not isinstance(name, str) or not name or len(name) > MAX_NAME or clean(name) != name:
        raise InvalidOption(
            sentence(
                "The name of the queue is %(name)s; it must be text of 1 to %(most)s characters without NUL. Jobs name their queue by "
                "queue_name=.",
                name=safe_repr(name),
                most=MAX_NAME,
            )
        )


def _decide(name: str, is_so: Q, **fields: Any) -> QueueAnswer:
    check_name(name)
    with Job.objects.database.atomic():
        rows = Queue.objects.current.filter(pk=name)
        if any(fields.values()) or fields.get("max_running") == 0:
            # Not "get or create": if two requests arrive at the same time, the second waits here for the first, and
            # then changes its row.
            Queue.objects.current.bulk_create([Queue(name=name)], ignore_conflicts=True)
        changed = bool(rows.exclude(is_so).update(changed_at=Now(), **fields))
        if changed:
            wakeup.queues_changed()
        stands = rows.values_list("paused", "max_running", "paused_until").first() or (False, None, None)
    return QueueAnswer(name, changed, *stands)


def forget_queue(name: str) -> bool:
    """Delete the row of a queue, and with it its pause, limit and webhook; return whether there was one.

    Raise `InvalidOption` if jobs of the queue are QUEUED or RUNNING.
    """
    check_name(name)
    with Job.objects.database.atomic():
        if Job.objects.any_in_queue(name):
            raise InvalidOption(
                sentence(
                    "Queue %(queue)s has jobs that are QUEUED or RUNNING; it cannot be forgotten before these have ended.",
                    queue=repr(mask_text(name)),
                )
            )
        deleted = bool(Queue.objects.current.filter(pk=name).delete()[0])
        if deleted:
            wakeup.queues_changed()
    return deleted
