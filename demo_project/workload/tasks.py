"""The tasks of the catalogue: each behaves as ``workload/kinds.py`` predicts for its kind, number, seed and pace."""

import asyncio
import hashlib
import threading
import time
from typing import Any

from demo_project.workload.kinds import KINDS, RETRIES, Foretold, foretell
from jobqueue import Fatal, TaskContext, fixed, request_job_cancel, task

QUEUE = "catalogue"
STEPS = 10
# The time in which the request to stop reaches the job that made it, from the database or with the next heartbeat.
MAX_STOP_SECONDS = 60.0
RETRYING: dict[str, Any] = {"max_attempts": RETRIES, "retry_on": (ConnectionError,), "backoff": fixed(0.2)}


@task(queue_name=QUEUE)
def instant(number: int, seed: str = "", pace: float = 1.0) -> int | None:
    """Return immediately."""
    return foretell("instant", number, seed, pace).result


@task(queue_name=QUEUE)
def short(number: int, seed: str = "", pace: float = 1.0) -> int | None:
    """Wait a moment in a call that cannot be interrupted, like a query."""
    told = foretell("short", number, seed, pace)
    threading.Event().wait(told.duration_seconds)
    return told.result


@task(queue_name=QUEUE, takes_context=True)
def long(context: TaskContext, number: int, seed: str = "", pace: float = 1.0) -> int | None:
    """Run for seconds, and report progress."""
    told = foretell("long", number, seed, pace)
    for step in range(STEPS):
        context.progress(100 * step / STEPS, f"step {step + 1} of {STEPS}")
        context.wait(told.duration_seconds / STEPS)
    return told.result


@task(queue_name=QUEUE, takes_context=True)
def sleepy(context: TaskContext, number: int, seed: str = "", pace: float = 1.0) -> int | None:
    """Wait in a way that can be stopped at any time."""
    told = foretell("sleepy", number, seed, pace)
    context.wait(told.duration_seconds)
    return told.result


@task(queue_name=QUEUE, takes_context=True)
def heavy(context: TaskContext, number: int, seed: str = "", pace: float = 1.0) -> int | None:
    """Keep a processor busy: its seconds are processor time, so it takes longer beside other jobs."""
    told = foretell("heavy", number, seed, pace)
    digest, end = b"", time.thread_time() + told.duration_seconds
    while time.thread_time() < end:
        for _ in range(500):
            digest = hashlib.sha256(digest).digest()
        context.raise_if_cancelled()
    return told.result


@task(queue_name=QUEUE)
async def coroutine(number: int, seed: str = "", pace: float = 1.0) -> int | None:
    """Await, without a thread."""
    told = foretell("coroutine", number, seed, pace)
    await asyncio.sleep(told.duration_seconds)
    return told.result


@task(queue_name=QUEUE, takes_context=True, **RETRYING)
def flaky(context: TaskContext, number: int, seed: str = "", pace: float = 1.0) -> int | None:
    """Fail in the first runs, then succeed."""
    told = foretell("flaky", number, seed, pace)
    context.wait(told.duration_seconds)
    if context.attempt < told.attempts:
        raise _failure(told, ConnectionError)
    return told.result


@task(queue_name=QUEUE, takes_context=True, **RETRYING)
def gives_up(context: TaskContext, number: int, seed: str = "", pace: float = 1.0) -> None:
    """Fail in each run."""
    told = foretell("gives_up", number, seed, pace)
    context.wait(told.duration_seconds)
    raise _failure(told, ConnectionError)


@task(queue_name=QUEUE)
def broken(number: int, seed: str = "", pace: float = 1.0) -> None:
    """Fail immediately."""
    raise _failure(foretell("broken", number, seed, pace), ValueError)


@task(queue_name=QUEUE, max_attempts=RETRIES)
def hopeless(number: int, seed: str = "", pace: float = 1.0) -> None:
    """Fail for good although attempts are left."""
    raise _failure(foretell("hopeless", number, seed, pace), Fatal)


@task(queue_name=QUEUE, takes_context=True)
def slow_then_fails(context: TaskContext, number: int, seed: str = "", pace: float = 1.0) -> None:
    """Work for a while, then fail."""
    told = foretell("slow_then_fails", number, seed, pace)
    context.progress(50, "about to fail")
    context.wait(told.duration_seconds)
    raise _failure(told, ValueError)


@task(queue_name=QUEUE)
async def coroutine_fails(number: int, seed: str = "", pace: float = 1.0) -> None:
    """Await, then fail."""
    told = foretell("coroutine_fails", number, seed, pace)
    await asyncio.sleep(told.duration_seconds)
    raise _failure(told, ValueError)


@task(queue_name=QUEUE, takes_context=True)
def cancels_itself(context: TaskContext, number: int, seed: str = "", pace: float = 1.0) -> None:
    """Request its own cancellation, and wait for it."""
    context.wait(foretell("cancels_itself", number, seed, pace).duration_seconds)
    request_job_cancel(context.job_id, outcome="CANCELED")
    context.wait(MAX_STOP_SECONDS)


TASKS: dict[str, Any] = {name: globals()[name] for name in KINDS}
"""The task of each kind, in the order of the catalogue."""


def _failure(told: Foretold, error: type[Exception]) -> Exception:
    return error(f"{told.kind} {told.number} fails, as predicted")
