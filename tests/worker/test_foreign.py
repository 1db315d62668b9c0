"""Each place where a worker calls code of the project, with each misbehavior of that code: claims, leases, ends and other jobs continue.

Not in the table: authenticators and what is evaluated at an enqueue (targets, unique keys) run in the caller's own thread, but for
schedules; a receiver of a webhook is another server, see `tests/webhooks`.
"""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction
from django.utils import timezone

from jobqueue import enqueue_many, signals, task
from jobqueue.duties import apply_retention, enqueue_scheduled_jobs, registry
from jobqueue.duties.base import FunctionDuty
from jobqueue.models import Job, Schedule
from jobqueue.worker.claiming import tenant_slots
from jobqueue.worker.process.log_thread import LogThread
from jobqueue.worker.process.supervisor import Supervisor
from tests.factories import JobFactory, ScheduleFactory
from tests.tasks import add
from tests.worker.whole import connected, ended, until, working

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
    # Threads that hung leave connections to the garbage collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

GOOD_SECONDS = 8.0

# What the code does


class Weird(Exception):
    """An exception that cannot be shown."""

    def __str__(self) -> str:
        raise SystemExit("no words")

    __repr__ = __str__


def raising(kind: Any) -> Callable[[], None]:
    def deed() -> None:
        raise kind

    return deed


def forks(*, returns: bool) -> None:
    if child := os.fork():
        os.waitpid(child, 0)
    else:
        signal.alarm(15)  # a child that continues is ended anyway
        if not returns:
            os._exit(0)


def prints_without_a_reader() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as output:
        print("without a reader", file=output, flush=True)


def changes_the_session() -> None:
    statement = "SET search_path TO nowhere" if connection.vendor == "postgresql" else "PRAGMA query_only = ON"
    with connection.cursor() as cursor:
        cursor.execute(statement)


def leaves_a_transaction_open() -> None:
    transaction.atomic().__enter__()
    Job.objects.exists()


DEEDS: dict[str, Callable[[], Any]] = {
    "ValueError": raising(ValueError("no")),
    "SystemExit": raising(SystemExit(3)),
    "KeyboardInterrupt": raising(KeyboardInterrupt),
    "GeneratorExit": raising(GeneratorExit),
    "CancelledError": raising(asyncio.CancelledError),
    "a group": raising(BaseExceptionGroup("many", [SystemExit(3), ValueError("no")])),
    "an exception that cannot be shown": raising(Weird()),
    "the end of its thread": _thread.exit,
    "1 s": partial(time.sleep, 1.0),
    "a fork": partial(forks, returns=False),
    "a fork that returns": partial(forks, returns=True),
    "a print without a reader": prints_without_a_reader,
    "an open transaction": leaves_a_transaction_open,
    "another session": changes_the_session,  # last, since the thread keeps its connection
}


class Foreign:
    """The code of the project: it does the deed that is set, and only in threads of the worker."""

    def __init__(self) -> None:
        self.deed: Callable[[], Any] | None = None
        self.called, self.released = threading.Event(), threading.Event()

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        if (deed := self.deed) is None or threading.current_thread() is threading.main_thread():
            return
        self.called.set()
        deed()

    def hang(self) -> None:
        """Return when the test ends."""
        self.released.wait(40)


foreign = Foreign()


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    foreign.deed = None
    foreign.called.clear()
    foreign.released.clear()
    yield
    foreign.deed = None
    foreign.released.set()


# Where it is called


@task
def victim() -> None:
    """Do nothing."""


@task
def calls() -> None:
    foreign()


@task
async def acalls() -> None:
    foreign()


@task(transactional=True)
def calls_back() -> None:
    transaction.on_commit(foreign)


def policy(error: Any, failures: int) -> float:
    foreign()
    return 0.05


@task(max_attempts=2, retry_on=(KeyError,), backoff=policy)
def is_tried_again() -> None:
    raise KeyError("again")


class Shown(Exception):
    """An exception whose text is made by the code."""

    def __str__(self) -> str:
        foreign()
        return "shown"

    __repr__ = __str__


@task
def fails_in_its_own_words() -> None:
    raise Shown


@task(unique_key=lambda number: foreign())
def has_key(number: int) -> None:
    """Do nothing."""


@task(target=lambda number: foreign())
def has_target(number: int) -> None:
    """Do nothing."""


@task
def is_scheduled(number: int) -> None:
    """Do nothing."""


def only_for(path: str) -> Callable[..., None]:
    def receive(*, task_result: Any, **_: Any) -> None:
        if task_result.task.module_path == path:
            foreign()

    return receive


class Around:
    """A context manager that calls the code at one moment."""

    def __init__(self, moment: str, name: str) -> None:
        self.moment, self.is_meant = moment, name in ("bad", victim.module_path)
        self.at("made")

    def at(self, moment: str) -> None:
        if self.is_meant and self.moment == moment:
            foreign()

    def __enter__(self) -> None:
        self.at("entered")

    def __exit__(self, *_: object) -> None:
        self.at("left")


class Place:
    """Where the code is called: what is set, and what makes a worker call it."""

    def __init__(
        self,
        trigger: Callable[[Supervisor], Any],
        *,
        setup: Any = contextlib.nullcontext,
        also: Callable[[], Any] = lambda: None,
        **settings: Any,
    ) -> None:
        self.trigger, self.setup, self.also, self.settings = trigger, setup, also, settings


def receives(name: str, trigger: Callable[[Supervisor], Any] = lambda _: victim.enqueue(), receiver: Any = foreign) -> Place:
    return Place(trigger, setup=lambda: connected(getattr(signals, name), receiver))


def loses_a_worker(_: Supervisor) -> None:
    JobFactory(expired=True, recovery="hold", task=victim.module_path)


def grows_old(worker: Supervisor) -> None:
    # It has just reached its age: an earlier run of the duty can have read only older ones.
    JobFactory(status="SUCCESS", queue="old", finished_at=timezone.now() - timedelta(seconds=3601))
    worker.parts.duties.notify("apply_retention")


def scheduled(made: Any, setup: Any = contextlib.nullcontext) -> Place:
    """Return a place that is called when the job of a schedule is made; a schedule behind it gets its job all the same."""

    def fall_due(worker: Supervisor) -> None:
        minute = timezone.now().replace(second=0, microsecond=0)
        for before, path in ((timedelta(minutes=1), made.module_path), (timedelta(0), add.module_path)):
            ScheduleFactory(task=path, next_at=minute - before)
        worker.parts.duties.notify("enqueue_scheduled_jobs")

    def others_have_their_job() -> None:
        until(lambda: not Schedule.objects.filter(task=add.module_path, last_job_id=None).exists(), "the other schedules")
        assert not Schedule.objects.filter(task=add.module_path).exclude(last_error="").exists()

    return Place(fall_due, setup=setup, also=others_have_their_job)


@contextlib.contextmanager
def as_duty() -> Iterator[None]:
    registry._factories["tests.foreign"] = lambda: FunctionDuty("tests.foreign", foreign, 0.05, "everyone", None)
    try:
        yield
    finally:
        del registry._factories["tests.foreign"]


@contextlib.contextmanager
def as_log_handler() -> Iterator[None]:
    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            foreign()

    logger, handler = logging.getLogger("jobqueue"), Handler()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


PLACES: dict[str, Place] = {
    "receiver of task_started": receives("task_started", receiver=only_for(victim.module_path)),
    "receiver of task_finished": receives("task_finished"),
    "receiver of job_settled": receives("job_settled"),
    "receiver of job_event": receives("job_event"),
    "receiver of job_lost": receives("job_lost", loses_a_worker),
    "receiver of job_stale": Place(
        grows_old, setup=lambda: connected(signals.job_stale, foreign), QUEUE_RETENTION={"old": {"STALE_AFTER": 3600}}
    ),
    "receiver of job_deleted": Place(
        grows_old, setup=lambda: connected(signals.job_deleted, foreign), QUEUE_RETENTION={"old": {"DELETE_AFTER": 3600}}
    ),
    "ON_STALE": Place(grows_old, ON_STALE=foreign, QUEUE_RETENTION={"old": {"STALE_AFTER": 3600}}),
    "ON_DELETE": Place(grows_old, ON_DELETE=foreign, QUEUE_RETENTION={"old": {"DELETE_AFTER": 3600}}),
    "TENANTS": Place(lambda _: None, TENANTS=lambda: foreign() or {"acme": 2}),
    **{
        f"TENANT_CONTEXT, {moment}": Place(lambda _: victim.using(tenant="bad").enqueue(), TENANT_CONTEXT=partial(Around, moment))
        for moment in ("made", "entered", "left")
    },
    **{
        f"RUN_CONTEXTS, {moment}": Place(lambda _: victim.enqueue(), RUN_CONTEXTS=[lambda run, moment=moment: Around(moment, run.task)])
        for moment in ("made", "entered", "left")
    },
    "back-off": Place(lambda _: is_tried_again.enqueue()),
    "on_commit": Place(lambda _: calls_back.enqueue()),
    "text of an error": Place(lambda _: fails_in_its_own_words.enqueue()),
    "task": Place(lambda _: calls.enqueue()),
    "coroutine": Place(lambda _: acalls.enqueue()),
    "duty": Place(lambda _: None, setup=as_duty),
    "unique key of a schedule": scheduled(has_key),
    "target of a schedule": scheduled(has_target),
    "receiver of task_enqueued, of a schedule": scheduled(
        is_scheduled, setup=lambda: connected(signals.task_enqueued, only_for(is_scheduled.module_path))
    ),
    "log handler": Place(lambda _: victim.enqueue(), setup=as_log_handler),
}
BRIEF = {
    "MAX_WORKERS": 8,
    "SHUTDOWN_GRACE_PERIOD_SECONDS": 0.2,
    "INTERRUPT_GRACE_SECONDS": 0.2,
    "DELIVERY_GRACE_SECONDS": 0.2,
    "HEARTBEAT_SECONDS": 0.2,
    "DUTY_HEARTBEAT_SECONDS": 0.5,
    "LEASE_SECONDS": 3,
}


@contextlib.contextmanager
def scene(name: str, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervisor]:
    """Run a worker with the code in its place."""
    monkeypatch.setattr(tenant_slots, "READ_SECONDS", 0.05)
    monkeypatch.setattr(enqueue_scheduled_jobs, "CALL_SECONDS", 0.5)
    monkeypatch.setattr(apply_retention, "SHORTER_SECONDS", 0.5)
    monkeypatch.setattr(logging, "raiseExceptions", False)
    place = PLACES[name]
    settings.JOBQUEUE = {**BRIEF, **place.settings}
    with place.setup(), LogThread(), working() as worker:
        yield worker
        assert not worker.failed


def others_go_on(what: str, seconds: float = GOOD_SECONDS) -> None:
    """Run jobs of several kinds, and see that each ran once, in time."""
    jobs = [
        *enqueue_many(add, [((number,), {}) for number in range(6)]),
        add.using(run_after=timedelta(seconds=0.1)).enqueue(1),
        add.using(target="line").enqueue(1),
        add.using(target="line").enqueue(2),
        add.using(tenant="acme").enqueue(1),
    ]
    found = ended(*jobs, seconds=seconds)
    assert found == ["SUCCESS"] * len(jobs), what
    assert set(Job.objects.filter(pk__in=[job.job_id for job in jobs]).values_list("attempt", "crashes")) == {(1, 0)}, what


def does(name: str, what: str, worker: Supervisor) -> None:
    foreign.called.clear()
    foreign.deed = foreign.hang if what == HANGS else DEEDS[what]
    PLACES[name].trigger(worker)
    assert foreign.called.wait(15), what
    others_go_on(what)
    PLACES[name].also()
    if what != HANGS:
        foreign.deed = None


def is_possible(name: str, what: str) -> bool:
    """Return whether code may do that there.

    In an event loop it has no database, and a hang is seen by `tests/worker/test_loop.py`. A hook of retention is called inside of its
    transaction, which on SQLite keeps every other writer away until it is undone: that has a test of its own.
    """
    if name.startswith("ON_") and what == HANGS:
        return connection.vendor != "sqlite"
    return name != "coroutine" or what not in ("another session", "an open transaction", HANGS)


HANGS = "a hang"
SOME = ("an exception that cannot be shown", "a fork that returns", HANGS)
# A worker calls it once a minute, or after a growing pause.
SELDOM = [name for name, place in PLACES.items() if place.trigger is grows_old or name == "duty"]


@pytest.mark.long
@pytest.mark.parametrize("name", PLACES)
def test_misbehavior_of_foreign_code_stops_no_other_job(name: str, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worst of the table; the whole of it is slow."""
    with scene(name, settings, monkeypatch) as worker:
        for what in SOME:
            if is_possible(name, what) and (what == HANGS or name not in SELDOM):
                does(name, what, worker)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in PLACES if name not in SELDOM])
def test_whatever_foreign_code_does_in_its_place_stops_no_other_job(name: str, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with scene(name, settings, monkeypatch) as worker:
        for what in DEEDS:
            if is_possible(name, what):
                does(name, what, worker)


@pytest.mark.slow
@pytest.mark.parametrize("what", DEEDS)
@pytest.mark.parametrize("name", SELDOM)
def test_whatever_foreign_code_does_where_it_is_seldom_called_stops_no_other_job(
    name: str, what: str, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scene(name, settings, monkeypatch) as worker:
        does(name, what, worker)


@pytest.mark.sqlite
@pytest.mark.slow
@pytest.mark.parametrize("name", ["ON_STALE", "ON_DELETE"])
def test_a_hook_of_retention_that_hangs_keeps_other_writers_away_for_a_while_only(
    name: str, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scene(name, settings, monkeypatch) as worker:
        foreign.deed = foreign.hang
        PLACES[name].trigger(worker)
        assert foreign.called.wait(15)
        # The contender thread can wait for the lock itself, for as long as the settings of the tests allow.
        transaction_timeout = connection.settings_dict["OPTIONS"]["timeout"]
        until(is_writable, "the lock is free", seconds=2 * transaction_timeout)
        others_go_on(HANGS, seconds=2 * transaction_timeout)


def is_writable() -> bool:
    """Return whether this thread can write at once."""
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA busy_timeout = 0")
        try:
            cursor.execute("BEGIN IMMEDIATE")
            cursor.execute("ROLLBACK")
        except OperationalError:
            return False
        finally:
            cursor.execute(f"PRAGMA busy_timeout = {int(connection.settings_dict['OPTIONS']['timeout'] * 1000)}")
    return True
