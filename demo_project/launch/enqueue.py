"""Put a composed batch into the queue."""

from collections.abc import Iterable

from django.db import transaction

from demo_project.launch.batch import Group
from demo_project.library import tasks
from jobqueue import enqueue_many, resume
from jobqueue.models import Job


def enqueue(groups: Iterable[Group]) -> tuple[list[int], int]:
    """Enqueue all jobs in one transaction; return their ids, and how many of them an earlier run had left behind.

    The tasks have unique keys: what an interrupted run left waiting is found again and not enqueued twice. What was paused
    meanwhile is resumed, or the batch would never end.
    """
    with transaction.atomic():
        results = [result for group in groups for result in enqueue_many(getattr(tasks, group.task).using(**group.options), group.calls)]
    ids = [result.job_id for result in results]
    for job_id in Job.objects.filter(pk__in=ids, status=Job.Status.PAUSED).values_list("pk", flat=True):
        resume(job_id)
    return ids, sum(not result.created for result in results)
