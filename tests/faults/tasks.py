"""Tasks of the fault tests: well-behaved ones that report to the witness, and every kind of misbehaving one."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import ctypes
import os
import random
import re
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any, NoReturn

import asgiref.sync
from django.contrib.auth.models import Group
from django.db import connection, transaction

from jobqueue import Fatal, Retry, fixed, task
from jobqueue.models import Worker
from tests.faults import ledger, witness

leaked: list[bytes] = []


# Well-behaved


@task(takes_context=True)
def work(context: Any, seconds: float = 0.0) -> int:
    """Block for this time, as a query or an HTTP request does."""
    with witness.run_of(context):
        time.sleep(seconds)
    return int(context.job_id)


@task
def flags(seconds: float) -> tuple[int, bool]:
    """Block for this time; return the options of the interpreter."""
    time.sleep(seconds)
    return sys.flags.optimize, sys.flags.dev_mode


@task
def fail_loudly(length: int) -> NoReturn:
    """Fail with a long text, which the log shows."""
    raise Fatal("x" * length)


@task
def register_for_exit(path: str) -> None:
    """Register what runs at the end of the interpreter: one function that never returns, and before it one that leaves a mark."""
    atexit.register(time.sleep, 60)
    atexit.register(lambda: Path(path).write_text("ran"))


@task(takes_context=True)
def leave_a_thread(context: Any) -> None:
    """Leave a thread that the end of the interpreter waits for."""
    with witness.run_of(context):
        threading.Thread(target=time.sleep, args=(60,), daemon=False).start()


@task(takes_context=True)
def wait_once(context: Any) -> int:
    """Wait in the first run, which is broken off; return at once in the next."""
    if not _has_begun(context):
        context.wait(60)
    return int(context.attempt)


def _has_begun(context: Any) -> bool:
    seen = witness.Witness(Path(os.environ[witness.VARIABLE])).count("start", context.job_id) > 0
    witness.tell("start", context)
    return seen


@task
def start_workers() -> str:
    """Start worker processes from within a worker; return what that says."""
    command = [sys.executable, "-m", "django", "runworkers", "--processes", "2"]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stderr


@task(takes_context=True)
async def awork(context: Any, seconds: float = 0.0) -> int:
    with witness.run_of(context):
        await asyncio.sleep(seconds)
    return int(context.job_id)


@task(takes_context=True)
def wait(context: Any, seconds: float = 60.0) -> None:
    with witness.run_of(context):
        context.wait(seconds)


@task(takes_context=True, recovery="hold")
def held_wait(context: Any, seconds: float = 60.0) -> None:
    with witness.run_of(context):
        context.wait(seconds)


@task(takes_context=True)
def meet(context: Any, number: int) -> None:
    """End when this number of these tasks run at the same time, which proves that as many threads live."""
    witness.tell("start", context)
    path = os.environ[witness.VARIABLE] + ".meeting"
    with open(path, "a") as file:
        file.write(".")
    while os.path.getsize(path) < number:
        context.wait(0.01)


# Stubborn


@task(takes_context=True)
def spin(context: Any, seconds: float = 60.0) -> None:
    """Keep the processor busy and never check the context."""
    with witness.run_of(context):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            pass


@task(takes_context=True)
def swallow(context: Any, seconds: float = 60.0) -> None:
    """Catch everything, for ever."""
    witness.tell("start", context)
    end, event = time.monotonic() + seconds, threading.Event()
    while time.monotonic() < end:
        with contextlib.suppress(BaseException):
            event.wait(0.05)  # in another module, as most calls that hang are


@task(takes_context=True, max_attempts=2, retry_on=(TimeoutError,))
def swallow_once(context: Any, seconds: float = 60.0) -> None:
    """Catch everything for this time in the first attempt, and end at once in the second."""
    witness.tell("start", context)
    end = time.monotonic() + (seconds if context.attempt == 1 else 0)
    while time.monotonic() < end:
        with contextlib.suppress(BaseException):
            time.sleep(0.05)


@task(takes_context=True)
def swallow_and_tick(context: Any, seconds: float = 60.0) -> None:
    """Catch everything, and report each time that it still runs."""
    witness.tell("start", context)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(BaseException):
            witness.tell("tick", context)
            time.sleep(0.02)


@task(takes_context=True)
async def aswallow(context: Any, seconds: float = 60.0) -> None:
    """Continue after each cancelation, forever."""
    witness.tell("start", context)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(BaseException):
            await asyncio.sleep(0.05)


@task(takes_context=True)
async def block_the_loop(context: Any, seconds: float = 60.0) -> None:
    """Block the thread that all coroutines share."""
    witness.tell("start", context)
    time.sleep(seconds)  # noqa: ASYNC251


@task(takes_context=True)
def keep_the_gil(context: Any, seconds: int) -> None:
    """Stop every thread of the process, as a C extension may do."""
    with witness.run_of(context):
        ctypes.PyDLL(None).sleep(seconds)


@task(takes_context=True)
def die(context: Any, seconds: float) -> NoReturn:
    """Take the whole process away."""
    witness.tell("start", context)
    time.sleep(seconds)
    os._exit(9)


@task
def grow(mb: int) -> None:
    """Take memory, and never give it back."""
    leaked.append(b"x" * (mb * 1_000_000))


# Failing


class Unspeakable(Exception):
    def __str__(self) -> NoReturn:
        raise RuntimeError("no text for you")

    __repr__ = __str__


class Outside(BaseException):
    pass


RAISED: dict[str, BaseException | type[BaseException]] = {
    "exit": SystemExit,
    "exit with a text": SystemExit("text"),
    "exit with 0": SystemExit(0),
    "interrupt": KeyboardInterrupt,
    "generator": GeneratorExit,
    "cancelled": asyncio.CancelledError,
    "outside": Outside,
    "stop": StopIteration,
    "memory": MemoryError,
    "unspeakable": Unspeakable,
    "nul": ValueError("a\0b"),
    "surrogate": ValueError("a\ud800b"),
    "huge": ValueError("x" * 30_000_000),
}


@task
def throw(name: str) -> NoReturn:
    raise RAISED[name]


@task
async def athrow(name: str) -> NoReturn:
    raise RAISED[name]


@task
def recurse() -> None:
    recurse.func()


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


RETURNED: dict[str, Any] = {
    "nul": lambda: "a\0b",
    "surrogate": lambda: ["a\ud800b"],
    "object": object,
    "nan": lambda: float("nan"),
    "bytes": lambda: b"x",
    "deep": lambda: nested(100_000),
    "huge": lambda: "x" * 30_000_000,
}


@task
def give(name: str) -> Any:
    return RETURNED[name]()


def raising(error: BaseException, failures: int) -> float:
    raise LookupError("no idea")


BACKOFFS: dict[str, Any] = {
    "raises": raising,
    "none": lambda error, failures: None,
    "negative": lambda error, failures: -1.0,
    "nan": lambda error, failures: float("nan"),
    "exits": lambda error, failures: sys.exit(3),
}


def _fail() -> NoReturn:
    raise ValueError("first")


def _declare(name: str, policy: Any) -> Any:
    def function() -> None:
        _fail()

    function.__name__ = function.__qualname__ = f"backoff_{name}"
    return task(max_attempts=3, backoff=policy)(function)


for _name, _policy in BACKOFFS.items():
    globals()[f"backoff_{_name}"] = _declare(_name, _policy)


@task(max_attempts=2, backoff=lambda error, failures: 0.3, takes_context=True)
def fail_once(context: Any) -> str:
    witness.tell("start", context)
    if context.attempt == 1:
        raise Retry("once more")
    return "second"


@task
def fatal() -> NoReturn:
    raise Fatal("token limit exceeded")


@task(takes_context=True)
def late_failure(context: Any, seconds: float) -> NoReturn:
    with witness.run_of(context):
        time.sleep(seconds)
    raise ValueError("late")


@task
def warn() -> str:
    warnings.warn("x", UserWarning, stacklevel=1)
    return "warned"


@task
def one_argument(a: int) -> int:
    return a


# With the connection


def write_row(host: str) -> None:
    """Write a row that shows whether the work of a task was committed."""
    import uuid

    Worker.objects.create(pk=uuid.uuid4(), host=host)


@task
def write(host: str) -> bool:
    """Write a row outside of any transaction, on a connection that must be usable."""
    write_row(host)
    return bool(connection.get_autocommit()) and not connection.in_atomic_block


@task
def hold_connection(seconds: float) -> None:
    """Keep a connection busy for this time."""
    with transaction.atomic():
        Worker.objects.count()
        time.sleep(seconds)


# Coroutines


@task(takes_context=True)
async def leave_tasks_pending(context: Any) -> str:
    left = asyncio.get_running_loop().create_task(asyncio.sleep(0.5))
    left.add_done_callback(lambda _: None)
    return "left"


@task(takes_context=True)
async def wait_for_a_thread(context: Any, seconds: float) -> None:
    """Wait for a thread that no interrupt reaches."""
    with witness.run_of(context):
        await asyncio.to_thread(time.sleep, seconds)


@task
async def count_rows() -> int:
    return int(await Worker.objects.acount())


@task
async def raise_through_the_loop() -> str:
    """Start a task that raises SystemExit, which asyncio passes on through the loop."""

    async def leave() -> None:
        sys.exit(4)

    asyncio.get_running_loop().create_task(leave())
    await asyncio.sleep(0.1)
    return "alive"


@task(takes_context=True)
def names_of_threads(context: Any) -> list[str]:
    return sorted(thread.name for thread in threading.enumerate())


@task
def wall_clock() -> float:
    """Return the local time of the task."""
    return time.time()


# Transactional


@task(takes_context=True, transactional=True)
def book(context: Any, name: str, dies: bool = False) -> None:
    """Make a group of the job's own; on the first run, die before or after that."""
    dies = dies and context.attempt == 1
    if dies and name == "before":
        os._exit(9)
    Group.objects.create(name=f"{name} {context.job_id}")
    if dies:
        os._exit(9)


@task(takes_context=True, transactional=True)
def book_and_leave_open(context: Any) -> None:
    """Make a group, and never leave the block that it is made in."""
    transaction.atomic().__enter__()
    Group.objects.create(name=f"left open {context.job_id}")


@task(takes_context=True, transactional=True)
def book_and_mumble(context: Any) -> None:
    """Make a group, and say what no database stores."""
    Group.objects.create(name=f"mumbled {context.job_id}")
    context.progress(50, "a\0b\ud800c")


# Misbehavior that must not affect other jobs


@task(takes_context=True)
def mumble(context: Any, seconds: float) -> None:
    """Report a message that no database stores, and continue for this time."""
    context.progress(50, "a\0b\ud800c")
    context.wait(seconds)


@task(takes_context=True)
def save(context: Any) -> None:
    """Save metadata, which waits for the thread that writes for all jobs of the process."""
    context.metadata["saved"] = True
    context.save_metadata()


# Of tenants


@task(takes_context=True)
def note(context: Any, seconds: float = 0.0) -> str:
    """Write into the table of whatever schema the connection is in, and return that schema's name."""
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO note (job) VALUES (%s)", [context.job_id])
        cursor.execute("SELECT current_schema()")
        schema = cursor.fetchone()[0]
    with witness.run_of(context):
        context.wait(seconds)
    return str(schema)


@task(takes_context=True)
async def anote(context: Any) -> str:
    return str(await asgiref.sync.sync_to_async(note.func)(context))


@task
def schema() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_schema()")
        return str(cursor.fetchone()[0])


# Kept in the ledger


@task(takes_context=True, max_attempts=1000, backoff=fixed(0.02, jitter=False))
def entered(context: Any, seconds: float, fails: float) -> None:
    """Work for a while; with this probability fail, and be tried again."""
    ledger.tell(context, "start")
    try:
        context.wait(seconds)
        context.raise_if_cancelled()
        if random.random() < fails:
            raise OSError("not this time")
    except BaseException:
        ledger.tell(context, "out")
        raise
    ledger.tell(context, "ok")


@task
def backtrack() -> None:
    """Never return from a match that does not give up Python's lock."""
    re.match(r"(a+)+$", "a" * 60 + "b")
