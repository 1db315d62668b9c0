"""What logs, mails and an error tracker get for a failed run: one record each, with the exception, its stack and the job."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
import time
from collections.abc import Iterator
from typing import Any

import django
import pytest
import sentry_sdk
from django.core import mail
from django.test import override_settings
from django.utils.log import AdminEmailHandler
from sentry_sdk.transport import Transport

from jobqueue import cancel, compat, fixed, pipeline, signals, task
from jobqueue.models import Job
from jobqueue.public_ids import public_id
from tests.factories import JobFactory
from tests.tasks import add, count_slowly
from tests.worker.whole import connected, ended, until, working

TASKS = {
    "default": {"BACKEND": "jobqueue.backends.DatabaseBackend", "QUEUES": []},
    "immediate": {"BACKEND": "jobqueue.testing.ImmediateBackend", "QUEUES": []},
}
ADMINS: list[Any] = ["ops@example.com"] if django.VERSION >= (6, 0) else [("ops", "ops@example.com")]
release = threading.Event()


class Lost(Exception):
    """An error of the project."""


def deep(text: str) -> None:
    raise Lost(text)


@task
def in_thread() -> None:
    deep("in a thread")


@task
async def in_coroutine() -> None:
    await asyncio.sleep(0)
    deep("in a coroutine")


@task(transactional=True)
def in_transaction() -> None:
    deep("in a transaction")


def first(context: Any) -> None:
    deep("in a phase")


@pipeline(phases=[first])
def in_phase(context: Any) -> None:
    """Fail in the first phase."""


@task
def by_exit() -> None:
    raise SystemExit(3)


@task(timeout=0.2)
def too_long() -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        time.sleep(0.01)


@task(timeout=0.2)
def deaf() -> None:
    while not release.is_set():
        with contextlib.suppress(BaseException):
            release.wait(0.05)


@task(max_attempts=2, retry_on=(Lost,), backoff=fixed(0.05, jitter=False))
def again() -> None:
    deep("again")


@task
def unstorable() -> Any:
    return object()


class Stub(Transport):
    """Keep events instead of sending them."""

    events: list[dict[str, Any]] = []

    def capture_envelope(self, envelope: Any) -> None:
        """Keep one."""
        if (event := envelope.get_event()) is not None:
            self.events.append(event)


class Kept(logging.Handler):
    """Keep what a formatter makes of each record, as a file would."""

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self.records: list[logging.LogRecord] = []
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one."""
        self.records.append(record)
        self.texts.append(self.format(record))


class AsJson(logging.Formatter):
    """One JSON object for each record, with its fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return it."""
        fields = {name: value for name, value in record.__dict__.items() if isinstance(value, str | int | None) and name != "exc_text"}
        trace = self.formatException(record.exc_info) if record.exc_info else None
        return json.dumps({**fields, "message": record.getMessage(), "exception": trace})


@pytest.fixture
def sentry() -> Iterator[list[dict[str, Any]]]:
    Stub.events = []
    sentry_sdk.init(dsn="http://key@localhost/1", transport=Stub, auto_enabling_integrations=False)
    yield Stub.events
    sentry_sdk.get_client().close(timeout=0)
    sentry_sdk.get_global_scope().set_client(None)


@pytest.fixture
def everywhere() -> Iterator[tuple[Kept, Kept]]:
    """Attach plain and JSON logging to the root, and mails to `django`, as Django does by default."""
    plain, as_json = Kept(logging.Formatter("%(levelname)s %(name)s %(message)s")), Kept(AsJson())
    mails = AdminEmailHandler()
    mails.setLevel(logging.ERROR)
    root, django = logging.getLogger(), logging.getLogger("django" if compat.LOGGER_NAME.startswith("django.") else compat.LOGGER_NAME)
    before, django.handlers = django.handlers, [mails]
    ours = logging.getLogger("jobqueue")
    level = ours.level
    ours.setLevel(logging.INFO)
    for handler in (plain, as_json):
        root.addHandler(handler)
    yield plain, as_json
    for handler in (plain, as_json):
        root.removeHandler(handler)
    django.handlers = before
    ours.setLevel(level)


KINDS: dict[Any, tuple[str, str]] = {
    in_thread: ("Lost", "deep"),
    in_coroutine: ("Lost", "deep"),
    in_transaction: ("Lost", "deep"),
    in_phase: ("Lost", "deep"),
    by_exit: ("SystemExit", "by_exit"),
    too_long: ("TimeLimitExceeded", "too_long"),
    deaf: ("TimeLimitExceeded", ""),
    again: ("Lost", "deep"),
    unstorable: ("ResultNotStorable", ""),
}


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
@override_settings(ADMINS=ADMINS, TASKS=TASKS, JOBQUEUE={"TIMEOUT_GRACE_SECONDS": 0.1, "DELIVERY_GRACE_SECONDS": 10})
def test_each_failed_run_is_one_event_with_its_exception_its_stack_and_its_job(
    sentry: list[dict[str, Any]], everywhere: tuple[Kept, Kept]
) -> None:
    release.clear()
    plain, as_json = everywhere
    try:
        with working():
            jobs = {kind: kind.enqueue() for kind in KINDS}
            assert ended(*jobs.values()) == ["ERROR"] * len(KINDS)
            good = add.enqueue(1)
            assert ended(good) == ["SUCCESS"]
            release.set()
    finally:
        release.set()
    for kind, (name, function) in KINDS.items():
        number = jobs[kind].job_id
        _logged(plain, as_json, number, kind.module_path, name, function)
        _tracked(sentry, number, name, function)
        mails = [one for one in mail.outbox if f"id={public_id(number)} " in one.subject]
        assert len(mails) == 1, (kind, [one.subject for one in mail.outbox])
        assert name in mails[0].body
        assert not function or f"in {function}" in mails[0].body
    assert len(sentry) == len(KINDS)
    assert len(mail.outbox) == len(KINDS)
    assert not [text for text in (*plain.texts, *as_json.texts) if "NoneType" in text]
    warnings = [record for record in plain.records if record.levelno == logging.WARNING and " PENDING " in record.getMessage()]
    assert [record.exc_info and record.exc_info[0] for record in warnings] == [Lost], "an attempt that is tried again"


def _logged(plain: Kept, as_json: Kept, number: int, path: str, name: str, function: str) -> None:
    errors = [text for text, record in zip(plain.texts, plain.records, strict=True) if _is_error_of(record, number)]
    assert len(errors) == 1, errors
    assert errors[0].startswith(f"ERROR jobqueue Job {number} {path} ERROR in ")
    assert "Traceback" in errors[0] or not function
    assert name in errors[0]
    assert f"in {function}" in errors[0] or not function
    found = [json.loads(text) for text, record in zip(as_json.texts, as_json.records, strict=True) if _is_error_of(record, number)]
    assert [(one["job_id"], one["task"], one["queue"], one["name"]) for one in found] == [(number, path, "default", "jobqueue")]
    assert name in found[0]["exception"]


def _is_error_of(record: logging.LogRecord, number: int) -> bool:
    return record.levelno >= logging.ERROR and (
        f"Job {number} " in record.getMessage() or f"id={public_id(number)} " in record.getMessage()
    )


def _tracked(events: list[dict[str, Any]], number: int, name: str, function: str) -> None:
    found = [event for event in events if event.get("extra", {}).get("job_id") == number]
    assert len(found) == 1, [event["logentry"] for event in events]
    value = found[0]["exception"]["values"][-1]
    assert value["type"] == name
    frames = value.get("stacktrace", {}).get("frames", [])
    assert not function or function in [frame["function"] for frame in frames]


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
@override_settings(TASKS=TASKS)
def test_the_record_of_django_is_not_made_if_its_handlers_get_the_record_of_jobqueue() -> None:
    made: list[str] = []
    theirs = logging.getLogger(compat.LOGGER_NAME)

    class Notes(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            made.append(record.getMessage())
            return True

    notes, extra, level = Notes(), logging.NullHandler(), theirs.level
    django, handlers = logging.getLogger("django"), logging.getLogger("django").handlers
    theirs.filters.insert(0, notes)
    theirs.setLevel(logging.WARNING)
    django.handlers = []
    try:
        with working():
            in_thread.enqueue()
            until(lambda: Job.objects.filter(status="ERROR").count() == 1)
        assert made == []
        theirs.addHandler(extra)
        with working():
            in_thread.enqueue()
            until(lambda: len(made) == 1)
    finally:
        theirs.filters.remove(notes)
        theirs.removeHandler(extra)
        theirs.setLevel(level)
        django.handlers = handlers


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
@override_settings(ADMINS=ADMINS, TASKS=TASKS)
def test_a_job_whose_worker_died_is_one_event(sentry: list[dict[str, Any]], everywhere: tuple[Kept, Kept]) -> None:
    heard: list[Any] = []

    def receive(task_result: Any, **_: Any) -> None:
        heard.append((task_result.job_id, str(task_result.status)))

    with connected(signals.task_finished, receive), working():
        job = JobFactory(expired=True, recovery="hold", task=add.module_path)
        until(lambda: bool(heard))
        until(lambda: bool(sentry))
    assert heard == [(job.pk, "FAILED")]
    assert [event["exception"]["values"][0]["type"] for event in sentry] == ["WorkerLost"]
    assert len([one for one in mail.outbox if f"id={public_id(job.pk)} " in one.subject]) == 1
    assert len([record for record in everywhere[0].records if record.levelno == logging.ERROR]) == 1


@override_settings(ADMINS=ADMINS, TASKS=TASKS)
@pytest.mark.parametrize("kind", [in_thread, in_coroutine, in_phase, by_exit, again])
def test_the_backend_that_runs_at_once_shows_a_failure_in_the_same_way(
    kind: Any, sentry: list[dict[str, Any]], everywhere: tuple[Kept, Kept]
) -> None:
    result = kind.using(backend="immediate").enqueue()
    name, function = KINDS[kind]
    plain, as_json = everywhere
    _logged(plain, as_json, result.job_id, kind.module_path, name, function)
    _tracked(sentry, result.job_id, name, function)
    assert (len(sentry), len(mail.outbox)) == (1, 1)


@pytest.mark.django_db(transaction=True)
@override_settings(ADMINS=ADMINS, TASKS=TASKS)
def test_mails_of_our_own_logger_take_the_place_of_djangos(everywhere: tuple[Kept, Kept]) -> None:
    ours, handler = logging.getLogger("jobqueue"), AdminEmailHandler()
    handler.setLevel(logging.ERROR)
    ours.addHandler(handler)
    try:
        result = in_thread.using(backend="immediate").enqueue()
    finally:
        ours.removeHandler(handler)
    assert [one.subject.partition(":")[2].strip().split(" ERROR ")[0] for one in mail.outbox] == [
        f"Job {result.job_id} {in_thread.module_path}"
    ]


@pytest.mark.django_db(transaction=True)
@override_settings(TASKS=TASKS)
def test_the_record_of_django_stays_if_that_of_jobqueue_is_off(everywhere: tuple[Kept, Kept]) -> None:
    logging.getLogger("jobqueue").setLevel(logging.CRITICAL)
    result = in_thread.using(backend="immediate").enqueue()
    found = [record for record in everywhere[0].records if record.levelno == logging.ERROR]
    assert [record.name for record in found] == [compat.LOGGER_NAME]
    assert f"id={result.id} " in found[0].getMessage()
    assert found[0].exc_info is not None
    assert found[0].exc_info[0] is Lost


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
@override_settings(ADMINS=ADMINS, TASKS=TASKS)
def test_a_job_that_a_person_cancels_is_no_failure(sentry: list[dict[str, Any]], everywhere: tuple[Kept, Kept]) -> None:
    with working():
        job = count_slowly.enqueue()
        until(lambda: Job.objects.get(pk=job.job_id).status == "RUNNING")
        cancel(job.job_id)
        assert ended(job) == ["CANCELED"]
    assert (sentry, mail.outbox) == ([], [])
    assert not [record for record in everywhere[0].records if record.levelno >= logging.WARNING]


class Exits(Exception):
    """An exception whose text ends the process."""

    def __str__(self) -> str:
        raise SystemExit(3)

    __repr__ = __str__


@task
def exits_in_its_text() -> None:
    raise Exits


class Shows(logging.Handler):
    """A handler that shows the exception itself."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            repr(record.exc_info[1])


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
@override_settings(TASKS=TASKS)
@pytest.mark.parametrize("name", ["jobqueue", compat.LOGGER_NAME])
def test_a_handler_that_raises_system_exit_keeps_no_signal_from_the_next_receiver(name: str, caplog: pytest.LogCaptureFixture) -> None:
    heard: list[str] = []
    settled = connected(signals.job_settled, lambda **given: heard.append("settled"))
    finished = connected(signals.task_finished, lambda **given: heard.append("finished"))
    handler = Shows()
    logging.getLogger(name).addHandler(handler)
    try:
        exits_in_its_text.enqueue()
        with settled, finished, working():
            until(lambda: len(heard) == 2)
    finally:
        logging.getLogger(name).removeHandler(handler)
    assert "A handler of the log raised SystemExit: 3 on the exception of a failed run" in caplog.text
