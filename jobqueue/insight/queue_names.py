"""The names of queues: which tasks, settings, schedules, workers and jobs use a name."""

from __future__ import annotations

from jobqueue import conf
from jobqueue.access.hiding import declared
from jobqueue.core import queue_rules
from jobqueue.core.loads import QUEUE
from jobqueue.core.masking import mask_text
from jobqueue.core.sentences import sentence
from jobqueue.db.overview import MAX_QUEUES
from jobqueue.declared import registry
from jobqueue.insight.workers import MAX_WORKERS, alive
from jobqueue.models import Job, Queue, Sample, Schedule

NEWEST = 1000


def warning(name: str) -> str:
    """Return a warning that the name of a queue may be mistyped if no task, setting, schedule, worker or job uses it; otherwise ""."""
    if is_known(name):
        return ""
    return sentence(
        "No task, setting, schedule, worker or recent job has a queue %(queue)s. If the name is mistyped, forget the queue.",
        queue=repr(mask_text(name)),
    )


def is_known(name: str) -> bool:
    """Return whether a task, a setting, a schedule, a live worker, an open job or one of the newest jobs names a queue."""
    return name in _declared() or _is_served(name) or _has_jobs(name) or Schedule.objects.current.filter(queue=name).exists()


def are_left_out() -> bool:
    """Return whether there are more rows of queues than the lists show."""
    return bool(Queue.objects.current.order_by().values_list("pk")[MAX_QUEUES : MAX_QUEUES + 1])


def _declared() -> set[str]:
    declared("")  # imports the task modules
    entries = [registry.find(path) for path in registry.paths()]
    settings = conf.current()
    return {
        "default",
        *(settings.queue_retention or {}),
        *(entry.task.queue_name for entry in entries if entry is not None),
    }


def _is_served(name: str) -> bool:
    """Return whether the setting or a live worker lists a queue by its full name; a prefix would also match mistyped names."""
    rules = [
        queue_rules.parse(conf.current().queues),
        *map(queue_rules.parse_stored, alive().values_list("queues", flat=True)[:MAX_WORKERS]),
    ]
    return any(rule is not None and name in rule.listed for rule in rules)


def _has_jobs(name: str) -> bool:
    newest = Job.objects.current.order_by("-pk").values_list("queue", flat=True)[:NEWEST]
    samples = Sample.objects.using(Job.objects.database.alias).filter(kind=QUEUE, name=name)
    return Job.objects.any_in_queue(name) or name in {*newest} or samples.exists()
