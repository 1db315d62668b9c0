"""Tasks with time limits for the fault tests; they report to the witness what they have done."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import Any

from django.contrib.auth.models import Group
from django.db import transaction

from jobqueue import fixed, pipeline, task
from tests.faults import witness


@task(takes_context=True, timeout=1, max_attempts=2, backoff=fixed(0.1, jitter=False), retry_on=(TimeoutError,))
def slow_at_first(context: Any) -> str:
    """Take too long on the first run."""
    with witness.run_of(context):
        if context.attempt == 1:
            while True:
                pass
    return "in time"


@task(takes_context=True, timeout=1)
def tidy(context: Any) -> str:
    """Rest for too long, and clean up."""
    try:
        context.wait(60)
    except TimeoutError:
        witness.tell("cleaned", context)
        context.wait(0.2)
        context.progress(40, "cleaned up")
        return "cleaned up"
    return "never"


@task(takes_context=True, timeout=1)
async def acancelled(context: Any) -> None:
    try:
        await asyncio.sleep(60)
    finally:
        await asyncio.sleep(0.05)
        witness.tell("cleaned", context)


@task(takes_context=True, timeout=1, transactional=True)
def book_slowly(context: Any) -> None:
    """Make a row whose transaction takes too long."""
    Group.objects.create(name=f"slow {context.job_id}")
    with contextlib.suppress(ValueError):
        context.wait(60)


def first(context: Any) -> str:
    context.wait(1.5)
    context.checkpoint("kept")
    return "first"


def second(context: Any) -> None:
    witness.tell("second", context)
    context.wait(60)


@pipeline(phases=[first, second], timeout=3)
def two_steps(context: Any) -> None:
    """Stay within the limit in each phase, but not in both together."""


def before_the_nap(context: Any) -> None:
    context.wait(2)
    context.sleep(0.5)


def after_the_nap(context: Any) -> str:
    context.wait(2)
    return "rested"


@pipeline(phases=[before_the_nap, after_the_nap], timeout=3)
def nap(context: Any) -> None:
    """Stay within the limit in each run."""


@task(takes_context=True)
def brief(context: Any, seconds: float) -> None:
    """Run for this time; the limit of another job must not interrupt it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


@task(timeout=0.3)
def chatter() -> None:
    """Write to the log as fast as may be."""
    while True:
        logging.getLogger(f"tests.chatter.{time.monotonic_ns() % 100}").warning("Still here.")


@task(takes_context=True, timeout=0.2, max_attempts=2, backoff=fixed(0.01, jitter=False), retry_on=(TimeoutError,))
def write_on(context: Any) -> None:
    """Write pairs of rows, each pair in a transaction, for as long as may be; at the second run one pair."""
    number = 0
    while number == 0 or context.attempt == 1:
        number += 1
        with transaction.atomic():
            for half in "ab":
                Group.objects.create(name=f"pair {context.job_id}-{context.attempt}-{number}{half}")
