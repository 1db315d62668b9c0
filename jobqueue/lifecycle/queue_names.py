"""The names of queues: who knows one, and how the row of a name that is not used any more is removed."""

from __future__ import annotations

import importlib
from typing import Any

from jobqueue import conf, queue_rules, states
from jobqueue.exceptions import InvalidOption
from jobqueue.hiding import declared
from jobqueue.lifecycle import wakeup
from jobqueue.lifecycle.queues import MOST_QUEUES, check_name
from jobqueue.lifecycle.workers import MOST_WORKERS, alive
from jobqueue.models import Job, Queue, QueueSample, Schedule

NEWEST = 1000


def warning(name: str) -> str:
    """Return a warning if no task, setting, schedule, worker or job knows a queue's name; it may be mistyped. Empty if one does."""
    if is_known(name):
        return ""
    return f"No task, setting, schedule, worker or recent job knows a queue {name!r}. If the name is mistyped, forget the queue."


def is_known(name: str) -> bool:
    """Return whether a task, a setting, a schedule, a live worker, an open job or one of the newest jobs names a queue."""
    return name in _declared() or _is_served(name) or _has_jobs(name) or Schedule.objects.current.filter(queue=name).exists()


def forget_queue(name: str) -> bool:
    """Remove the row of a queue, and with it its pause, limit and webhook; return whether there was one.

    Raise `InvalidOption` if jobs of the queue are QUEUED or RUNNING.
    """
    check_name(name)
    with Job.objects.database.atomic():
        if _is_busy(name):
            raise InvalidOption(f"Queue {name!r} has jobs that are QUEUED or RUNNING; it cannot be forgotten before these have ended.")
        gone = bool(Queue.objects.current.filter(pk=name).delete()[0])
        if gone:
            wakeup.queues_changed()
    return gone


def are_left_out() -> bool:
    """Return whether there are more rows of queues than the lists show."""
    return bool(Queue.objects.current.order_by().values_list("pk")[MOST_QUEUES : MOST_QUEUES + 1])


def _declared() -> set[str]:
    declared("")  # has the tasks' modules imported
    registry: Any = importlib.import_module("jobqueue.tasks.registry")
    entries = [registry.find(path) for path in registry.paths()]
    settings = conf.current()
    return {
        "default",
        *(settings.queue_retention or {}),
        *(entry.task.queue_name for entry in entries if entry is not None),
    }


def _is_served(name: str) -> bool:
    """Return whether the setting or a live worker lists a queue; a prefix knows no name, so a mistyped one is still found."""
    rules = [
        queue_rules.parse(conf.current().queues),
        *map(queue_rules.parse_stored, alive().values_list("queues", flat=True)[:MOST_WORKERS]),
    ]
    return any(rule is not None and name in rule.listed for rule in rules)


def _has_jobs(name: str) -> bool:
    newest = Job.objects.current.order_by("-pk").values_list("queue", flat=True)[:NEWEST]
    samples = QueueSample.objects.using(Job.objects.database.alias).filter(queue=name)
    return _is_busy(name) or name in {*newest} or samples.exists()


def _is_busy(name: str) -> bool:
    if any(pair.name == name for pair in Job.objects.database.queues_in(MOST_QUEUES)):
        return True
    return Job.objects.current.filter(status=states.Status.RUNNING, queue=name).exists()
