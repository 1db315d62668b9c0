"""Pipelines of the fault tests; they report to the witness what they have done."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from django.contrib.auth.models import Group
from django.db import transaction

from jobqueue import enqueue_many, phase, pipeline, task
from tests.faults import witness

NUMBER = 10


def step(index: int) -> Any:
    """Return a phase that reports its half and its end, and returns the input of the next phase."""

    def do(context: Any, seconds: float) -> list[int]:
        before = context.phase_result(f"step {index - 1}") if index else []
        time.sleep(seconds / 2)
        witness.tell(f"half {index}", context)
        context.progress(50, f"half of step {index}")
        time.sleep(seconds / 2)
        witness.tell(f"did {index}", context)
        return [*before, index]

    return phase(f"step {index}")(do)


@pipeline(phases=[step(index) for index in range(NUMBER)])
def ten_steps(context: Any, seconds: float) -> dict[str, Any]:
    """Run ten steps in order."""
    return context.phase_results()  # type: ignore[no-any-return]


def inside(context: Any) -> str:
    with transaction.atomic():
        Group.objects.create(name="inside of a phase")
        context.progress(40, "inside of a transaction")
        context.checkpoint({"row": 7})
        witness.tell("start", context)
        context.wait(60)
    return "over"


@pipeline(phases=[inside])
def transaction_in_a_phase(context: Any) -> None:
    """Hold a transaction open."""


def rest(context: Any, seconds: float) -> None:
    witness.tell("start", context)
    context.sleep(seconds)


def rise(context: Any, seconds: float) -> str:
    witness.tell("rise", context)
    return "rested"


@pipeline(phases=[rest, rise])
def nap(context: Any, seconds: float) -> None:
    """Rest and rise."""


async def afetch(context: Any) -> int:
    context.progress(30)
    await context.acheckpoint([1])
    await asyncio.sleep(0.01)
    return 6


async def awaited(context: Any) -> None:
    await asyncio.sleep(0)
    context.sleep(0.1, result=7)


async def amultiply(context: Any) -> int:
    results = context.phase_results()
    return int(results["afetch"] * results["awaited"])


@pipeline(phases=[afetch, awaited, amultiply])
async def coroutine(context: Any) -> None:
    """Multiply what earlier phases came to."""


@task
def child() -> int:
    return 1


def spread(context: Any, number: int) -> int:
    queue = context.task_result.task.queue_name
    context.wait_for(enqueue_many(child.using(queue_name=queue), [((), {})] * number), result=number)
    return 0


def gather(context: Any, number: int) -> int:
    seen, after = 0, 0
    while found := context.children(after=after, limit=1000):
        seen += sum(one.result for one in found)
        after = found[-1].job_id
    return seen


@pipeline(phases=[spread, gather])
def family(context: Any, number: int) -> None:
    """Count children."""


def flood(context: Any) -> float:
    began = time.monotonic()
    for number in range(10_000):
        context.progress(number / 100, f"row {number}")
    return time.monotonic() - began


@task(takes_context=True)
def flood_task(context: Any, ending: str) -> float:
    """Report ten thousand steps, and end with the last report."""
    took = flood(context)
    if ending == "fail":
        raise ValueError("at the end")
    witness.tell("start", context)
    if ending == "wait":
        context.wait(60)
    return took


@pipeline(phases=[flood])
def flood_in_a_phase(context: Any) -> None:
    """Report ten thousand steps."""


def prepare(context: Any) -> str:
    witness.tell("prepare", context)
    return "ready"


def linger(context: Any) -> Any:
    before = context.checkpoint_data
    context.checkpoint({"attempt": context.attempt, "lease": context.lease_token})
    context.progress(30)
    witness.tell("start", context)
    if before is None:
        context.wait(60)
    return before["lease"] < context.lease_token


@pipeline(phases=[prepare, linger])
def long(context: Any) -> None:
    """Linger in the first run."""


async def aprepare(context: Any) -> str:
    return "ready"


async def alinger(context: Any) -> None:
    await context.acheckpoint(1)
    witness.tell("start", context)
    await asyncio.sleep(60)


@pipeline(phases=[aprepare, alinger])
async def along(context: Any) -> None:
    """Linger without a thread."""
