"""Pipelines of these tests."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import datetime
from typing import Any

from asgiref.sync import sync_to_async
from django.db import transaction

from jobqueue import fixed, phase, pipeline, task
from jobqueue.exceptions import Suspended

ran: Counter[str] = Counter()
"""How often each phase was run, by name."""
fails: Counter[str] = Counter()
"""How often each phase is still to fail."""
seen: dict[str, Any] = {}


def _run(name: str) -> None:
    ran[name] += 1
    if fails[name]:
        fails[name] -= 1
        raise ValueError(f"{name} failed")


def forget() -> None:
    """Begin anew."""
    ran.clear()
    fails.clear()
    seen.clear()


def download(context: Any, url: str) -> dict[str, str]:
    _run("download")
    context.progress(50, "half")
    return {"file": url}


def process(context: Any, url: str) -> list[str]:
    context.progress(25)
    _run("process")
    return [context.phase_result("download")["file"], url]


def upload(context: Any, url: str) -> str:
    _run("upload")
    context.progress(80)
    seen["results"] = context.phase_results()
    return f"uploaded {context.phase_result('process')[0]}"


@pipeline(phases=[download, process, upload], max_attempts=3, backoff=fixed(0, jitter=False))
def publish(context: Any, url: str) -> None:
    """Download, process and upload a video."""
    ran["publish"] += 1


@pipeline(phases=[download, process, upload], retry_on=())
def publish_with_summary(context: Any, url: str) -> dict[str, Any]:
    return {"number": len(context.phase_results()), "url": url}


async def fetch(context: Any, number: int) -> int:
    _run("fetch")
    await asyncio.sleep(0)
    context.progress(50)
    await context.acheckpoint({"at": number})
    return number + 1


async def store(context: Any, number: int) -> int:
    _run("store")
    return int(context.phase_result("fetch")) * 10


@pipeline(phases=[fetch, store])
async def mirror(context: Any, number: int) -> None:
    """Fetch and store."""


def count(context: Any, number: int) -> int:
    ran["count"] += 1
    at = (context.checkpoint_data or {"at": 0})["at"]
    seen.setdefault("began at", []).append(at)
    while at < number:
        at += 1
        context.checkpoint({"at": at})
        if at == number // 2:
            _run("half")
    return at


@pipeline(phases=[count], max_attempts=3, backoff=fixed(0, jitter=False))
def count_up(context: Any, number: int) -> None:
    """Count to a number."""


def rest(context: Any, seconds: Any) -> None:
    ran["rest"] += 1
    context.sleep(seconds, result="slept")


def rise(context: Any, seconds: Any) -> str:
    ran["rise"] += 1
    return str(context.phase_result("rest"))


@pipeline(phases=[rest, rise])
def nap(context: Any, seconds: Any) -> None:
    """Rest and rise."""


@task
def child(number: int) -> int:
    if number < 0:
        raise ValueError("a negative child")
    return number


def spread(context: Any, numbers: list[int]) -> None:
    ran["spread"] += 1
    context.wait_for([child.enqueue(number) for number in numbers], result=len(numbers))


def gather(context: Any, numbers: list[int]) -> list[Any]:
    _run("gather")
    return [[one.status, one.result, one.message] for one in context.children()]


@pipeline(phases=[spread, gather])
def family(context: Any, numbers: list[int]) -> None:
    """Spread the numbers over children, and gather what became of them."""


def suspend_inside(context: Any, name: str) -> None:
    with transaction.atomic():
        made = child.enqueue(1)
        context.sleep(0) if name == "sleep" else context.wait_for(made)


async def asuspend_inside(context: Any, name: str) -> None:
    await sync_to_async(suspend_inside)(context, name)


@pipeline(phases=[suspend_inside])
def hasty(context: Any, name: str) -> None:
    """Sleep inside a transaction."""


@pipeline(phases=[asuspend_inside])
async def ahasty(context: Any, name: str) -> None:
    """Do the same in a coroutine."""


def suspend_behind(context: Any) -> None:
    with transaction.atomic():
        given = child.enqueue(1)
    context.wait_for(given)


@pipeline(phases=[suspend_behind])
def patient(context: Any) -> None:
    """Sleep after a transaction."""


def wait_given(context: Any, jobs: list[int]) -> None:
    context.wait_for(jobs)


def after(context: Any, jobs: list[int]) -> int:
    return len(context.children())


@pipeline(phases=[phase("wait")(wait_given), after])
def follow(context: Any, jobs: list[int]) -> None:
    """Wait for other jobs."""


def bad_result(context: Any) -> object:
    ran["bad"] += 1
    return object()


@pipeline(phases=[bad_result], max_attempts=5, backoff=fixed(0, jitter=False))
def unstorable(context: Any) -> None:
    """Return what is no JSON."""


@task(max_attempts=3)
def impostor() -> None:
    raise Suspended("not by the context")


def until(context: Any, when: str) -> None:
    context.sleep(datetime.fromisoformat(when))


@pipeline(phases=[until])
def sleep_until(context: Any, when: str) -> None:
    """Sleep until a time."""


@task(takes_context=True, max_attempts=3)
def plain(context: Any, name: str) -> None:
    method = getattr(context, name)
    method() if name == "children" else method(1)


def nothing(context: Any, name: str) -> None: ...


@pipeline(phases=[nothing], max_attempts=3)
def late(context: Any, name: str) -> None:
    getattr(context, name)(1)


def swallow(context: Any) -> str:
    try:
        context.sleep(60, result="slept")
    except BaseException:  # noqa: BLE001 - as some libraries do
        return "awake"


@pipeline(phases=[swallow])
def swallowing(context: Any) -> None:
    """Swallow what ends the run."""


def taste(context: Any, order: dict[str, Any], *more: Any) -> str:
    order["extra"] = order.pop("id")
    for one in more:
        one.clear()
    return "tasted"


def serve(context: Any, order: dict[str, Any], *more: Any) -> str:
    _run("serve")
    return f"{sorted(order)} {more}"


async def ataste(context: Any, order: dict[str, Any], *more: Any) -> str:
    return taste(context, order, *more)


async def aserve(context: Any, order: dict[str, Any], *more: Any) -> str:
    return serve(context, order, *more)


@pipeline(phases=[taste, serve], max_attempts=2, backoff=fixed(0, jitter=False))
def dine(context: Any, order: dict[str, Any], *more: Any) -> list[Any]:
    return [context.phase_result("serve"), sorted(order), *more]


@pipeline(phases=[ataste, aserve], max_attempts=2, backoff=fixed(0, jitter=False))
async def adine(context: Any, order: dict[str, Any], *more: Any) -> list[Any]:
    return [context.phase_result("aserve"), sorted(order), *more]


async def doze(context: Any, seconds: float) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.Event().wait())
        group.create_task(_nested(context, seconds))


async def _nested(context: Any, seconds: float) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(_sleep(context, seconds))


async def _sleep(context: Any, seconds: float) -> None:
    context.sleep(seconds, "dozed")


def drowse(context: Any, seconds: float) -> None:
    try:
        context.sleep(seconds, "dozed")
    except BaseException as error:
        raise RuntimeError("what a library makes of it") from error


async def wake(context: Any, seconds: float) -> str:
    return str(context.phase_result("doze"))


@pipeline(phases=[doze, wake])
async def siesta(context: Any, seconds: float) -> str:
    return str(context.phase_result("wake"))


@pipeline(phases=[drowse])
def slumber(context: Any, seconds: float) -> str:
    return str(context.phase_result("drowse"))
