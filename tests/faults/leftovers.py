"""Tasks that leave their connection, thread or process in a state that no other job may inherit, and tasks that fork."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import time
import warnings
from typing import Any

import asgiref.sync
from django.contrib.auth.models import Group
from django.db import IntegrityError, NotSupportedError, connection, transaction
from django.utils import timezone, translation

from jobqueue import phase, pipeline, task
from jobqueue.models import Worker
from tests.faults import witness
from tests.faults.tasks import write_row

# With the connection


@task
def leave_atomic_open() -> str:
    transaction.atomic().__enter__()
    write_row("left open")
    return "left"


@task
def autocommit_off() -> str:
    transaction.set_autocommit(False)
    write_row("autocommit off")
    return "off"


@task
def raw_begin() -> str:
    with connection.cursor() as cursor:
        cursor.execute("BEGIN")
    write_row("raw begin")
    return "begun"


@task
def swallow_integrity_error() -> str:
    known = Worker.objects.values_list("pk", flat=True).first()
    with transaction.atomic():
        with contextlib.suppress(IntegrityError):
            Worker.objects.create(pk=known)
        return str(Worker.objects.count())  # the transaction is broken: this raises
    return ""


@task
def close_inside_atomic() -> None:
    with transaction.atomic():
        write_row("closed inside")
        connection.connection.close()


@task
def lose_connection() -> str:
    """End the task's own session on the server (on SQLite: close the connection without Django's knowledge)."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
    connection.ensure_connection()
    connection.connection.close()
    return "unreachable on PostgreSQL"


@task
def lose_connection_quietly() -> str:
    try:
        lose_connection.func()
    except Exception:  # noqa: BLE001
        return "lost"
    return "lost"


# With a thread or a process


@task(takes_context=True)
def fork(context: Any, how: str) -> int:
    """Make a child return, raise or exit like the task itself; wait for it, and return its status."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a fork in a process with threads
        child = os.fork()
    if child == 0:
        if how == "raise":
            raise ValueError("from the child")
        if how == "exit":
            sys.exit(3)
        return 0
    witness.tell("start", context)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


FORKS = multiprocessing.get_context("fork")


def _query(pipe: Any) -> None:
    """Ask the database in a child, inside and outside of a transaction, and close what there is."""
    try:
        with transaction.atomic():
            found = Group.objects.count()
        connection.close()
        said: Any = [found, Group.objects.count()]
    except NotSupportedError as error:
        said = str(error)
    pipe.send([said, signal.getsignal(signal.SIGTERM) is signal.SIG_DFL])


@task
def query_in_child() -> list[Any]:
    """Use the database before, in and after a child, the last in the transaction that was open at the fork."""
    ours, theirs = FORKS.Pipe()
    with transaction.atomic():
        before = Group.objects.count()
        child = FORKS.Process(target=_query, args=(theirs,))
        child.start()
        answer = ours.recv() if ours.poll(10) else None
        child.join(10)
        return [before, answer, Group.objects.count(), child.exitcode]


@task
def end_pool_of_children() -> str:
    """End a pool of processes while it works, which sends them SIGTERM."""
    with FORKS.Pool(2) as pool:
        pool.apply_async(time.sleep, (60,))
        pool.apply(abs, (-1,))
    return "ended"


@task(takes_context=True)
def use_context_in_child(context: Any) -> list[str]:
    """Call what writes through the worker's threads in a child; return what it raises."""
    ours, theirs = FORKS.Pipe()

    def child() -> None:
        said = []
        for call in (context.save_metadata, lambda: context.progress(1)):
            try:
                call()
            except Exception as error:  # noqa: BLE001
                said.append(str(error))
        theirs.send(said)

    process = FORKS.Process(target=child)
    process.start()
    found = ours.recv() if ours.poll(10) else ["no answer"]
    process.kill()
    process.join(10)
    return found  # type: ignore[no-any-return]


def _first_that_forks(context: Any) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
    if child == 0:
        return 1
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _second_after_it(context: Any) -> int:
    witness.tell("second", context)
    return int(context.phase_result("first_that_forks"))


@pipeline(phases=[phase("first_that_forks")(_first_that_forks), phase("second_after_it")(_second_after_it)])
def fork_in_phase(context: Any) -> None:
    """Fork in a phase; the child returns from it."""


@task(takes_context=True)
async def afork(context: Any, how: str) -> int:
    """Fork in a coroutine or in a thread of it; the child returns, or awaits."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if how == "thread":
            child = await asyncio.to_thread(os.fork)
        elif how == "sync_to_async":
            child = await asgiref.sync.sync_to_async(os.fork)()
        else:
            child = os.fork()
    if child == 0 and how == "await":
        await asyncio.sleep(0.1)
    witness.tell("afork", context)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) if child else 0  # noqa: ASYNC222


@task
def leave_a_daemon(seconds: float) -> int:
    """Fork a process that stays for a while after the worker has died."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
    if child == 0:
        time.sleep(seconds)
        os._exit(0)
    return child


@task
def leave_an_orphan() -> int:
    """Start a program that outlives the process that started it, and return its process id."""
    told = subprocess.run(["/bin/sh", "-c", "sleep 0.7 >/dev/null 2>&1 & echo $!"], capture_output=True, check=True)
    return int(told.stdout.split()[0])


@task
def change_place(zone: str) -> None:
    timezone.activate(zone)
    translation.activate("de")


@task
def place() -> list[str]:
    return [timezone.get_current_timezone_name(), str(translation.get_language())]


@task(takes_context=True)
def log_and_wait(context: Any, lines: int, seconds: float = 60.0) -> None:
    """Log many lines, and wait."""
    logger = logging.getLogger("tests.faults.logged")
    logger.setLevel(logging.INFO)
    for number in range(lines):
        logger.info("line %d", number + 1)
    context.wait(seconds)
