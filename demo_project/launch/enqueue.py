"""Enqueue a composed batch."""

from collections.abc import Iterable

from django.db import transaction

from demo_project.launch.batch import Group
from demo_project.library import tasks
from jobqueue import enqueue_many, resume
from jobqueue.models import Job


def enqueue(groups: Iterable[Group]) -> tuple[list[int], int]:
    """Enqueue all jobs in one transaction; return their ids, and how many of them an earlier run had left unfinished.

    The tasks have unique keys: a job that an interrupted run left unfinished is found again, and not enqueued
    twice. Paused jobs are resumed, because the batch would never end otherwise.
    """
    with transaction.atomic():
        results = [result for group in groups for result in enqueue_many(getattr(tasks, group.task).using(**group.options), group.calls)]
    ids = [result.job_id for result in results]
    for job_id in Job.objects.filter(pk__in=ids, status=Job.Status.PAUSED).values_list("pk", flat=True):
        resume(job_id)
    return ids, sum(not result.created for result in results)
