"""Tasks of the project: their own work is in the main database."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import Group
from django.db import transaction

from jobqueue import Retry, enqueue_many, pipeline, task


@task
def make_group(name: str) -> int:
    """Write into the main database."""
    with transaction.atomic():
        return Group.objects.create(name=name).pk


@task(takes_context=True, max_attempts=2)
def retried(context: Any) -> str:
    if context.attempt == 1:
        raise Retry(delay=0.1)
    context.progress(40, "again")
    context.metadata["seen"] = True
    context.save_metadata()
    return "in the end"


@task(takes_context=True)
def wait(context: Any, seconds: float = 60.0) -> None:
    context.progress(10, "waits")
    context.wait(seconds)


@task
async def child() -> int:
    return 1


def spread(context: Any) -> int:
    context.wait_for(enqueue_many(child, [((), {})] * 3))
    return 0


def gather(context: Any) -> int:
    return sum(one.result for one in context.children())


@pipeline(phases=[spread, gather])
def family(context: Any) -> int:
    return int(context.phase_result("gather"))


@task(transactional=True)
def book(name: str) -> None:
    """Ask for what cannot be: one transaction in two databases."""
    Group.objects.create(name=name)
