"""Receivers of signals: a slow or failing one delays only other signals."""

from __future__ import annotations

import logging
import sys
import threading
import time
from datetime import timedelta
from typing import Any

import pytest
from django.dispatch import Signal

from jobqueue import enqueue_many, fixed, signals, task
from jobqueue.failure_log import RunError, while_handling
from jobqueue.insight.workers import stuck_services
from jobqueue.models import Job, Worker
from jobqueue.worker.claiming import tenant_slots
from jobqueue.worker.process.show import health
from jobqueue.worker.reporting import announcer as module
from jobqueue.worker.reporting.announcer import Announcer
from tests.factories import JobFactory
from tests.tasks import add
from tests.worker.whole import Hang, connected, ended, until, working

pytestmark = pytest.mark.long
SIGNALS = ["task_finished", "job_settled", "job_event"]


@pytest.fixture
def hang() -> Any:
    made = Hang()
    yield made
    made.released.set()


@pytest.fixture(autouse=True)
def brief(settings: Any) -> None:
    settings.JOBQUEUE = {"DELIVERY_GRACE_SECONDS": 0.2}


class Hiding(Exception):
    """An exception whose class hides what `raise` sets."""

    __traceback__ = property(lambda self: 1 / 0)  # type: ignore[assignment]
    __context__ = property(lambda self: 1 / 0)  # type: ignore[assignment]


def test_an_exception_whose_class_hides_its_traceback_is_handled() -> None:
    error, seen = Hiding("x"), []
    while_handling(RunError(error), lambda: seen.append(sys.exc_info()[1] is error))
    assert seen == [True]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", SIGNALS)
def test_a_receiver_that_hangs_delays_no_job_and_no_end_of_the_worker(name: str, hang: Hang) -> None:
    with connected(getattr(signals, name), hang), working():
        jobs = [add.enqueue(number) for number in range(20)]
        assert ended(*jobs) == ["SUCCESS"] * 20
        assert hang.entered.wait(5)
        began = time.monotonic()
    assert time.monotonic() - began < 8
    assert set(Job.objects.values_list("attempt", "crashes")) == {(1, 0)}


@pytest.mark.django_db(transaction=True)
def test_a_receiver_that_hangs_over_the_loss_of_a_worker_delays_no_duty(hang: Hang) -> None:
    lost = JobFactory(expired=True, recovery="hold", task=add.module_path)
    with connected(signals.job_lost, hang), working():
        assert hang.entered.wait(20)
        later = add.using(run_after=timedelta(seconds=0.2)).enqueue(1)
        assert ended(later) == ["SUCCESS"]
        assert Job.objects.get(pk=lost.pk).status == "ERROR"


@pytest.mark.django_db(transaction=True)
def test_a_slow_receiver_delays_no_job(hang: Hang) -> None:
    def slow(**_: Any) -> None:
        hang.released.wait(0.5)

    with connected(signals.task_finished, slow), working():
        jobs = enqueue_many(add, [((number,), {}) for number in range(20)])
        began = time.monotonic()
        assert ended(*jobs, seconds=8) == ["SUCCESS"] * 20
        assert time.monotonic() - began < 8, "16 s, if each waited for its receiver"
        hang.released.set()


@pytest.mark.django_db(transaction=True)
def test_every_signal_arrives_before_the_worker_ends(settings: Any) -> None:
    settings.JOBQUEUE = {"DELIVERY_GRACE_SECONDS": 10}
    heard: list[tuple[str, str]] = []
    thread: set[str] = set()

    def receive(*, task_result: Any, **_: Any) -> None:
        time.sleep(0.02)
        heard.append((task_result.id, str(task_result.status)))
        thread.add(threading.current_thread().name)

    with connected(signals.task_finished, receive), working():
        jobs = [add.enqueue(number) for number in range(50)]
        ended(*jobs)
    assert sorted(heard) == sorted((job.id, "SUCCESSFUL") for job in jobs)
    assert thread == {"jobqueue-announcer"}


@task(max_attempts=2, retry_on=(KeyError,), backoff=fixed(0.05, jitter=False))
def fails_twice() -> None:
    with_large_local = bytearray(1)
    raise KeyError(str(len(with_large_local)))


@pytest.mark.django_db(transaction=True)
def test_a_receiver_is_called_inside_of_an_except_block_with_the_real_exception() -> None:
    heard: list[tuple[str, Any, list[str], Any]] = []

    def receive(**more: Any) -> None:
        _, error, trace = sys.exc_info()
        names, locals_ = [], {}
        while trace is not None:
            names.append(trace.tb_frame.f_code.co_name)
            locals_, trace = dict(trace.tb_frame.f_locals), trace.tb_next
        heard.append((more.get("status") or str(more["task_result"].status), repr(error), names, locals_))
        assert more.get("exception", error) is error

    with connected(signals.task_finished, receive), connected(signals.job_settled, receive), working():
        job = fails_twice.enqueue()
        good = add.enqueue(1)
        assert ended(job, good) == ["ERROR", "SUCCESS"]
    found = {(status, error): names[-1:] for status, error, names, _ in heard}
    assert found == {
        ("PENDING", "KeyError('1')"): ["fails_twice"],
        ("ERROR", "KeyError('1')"): ["fails_twice"],
        ("FAILED", "KeyError('1')"): ["fails_twice"],
        ("SUCCESS", "None"): [],
        ("SUCCESSFUL", "None"): [],
    }
    assert all(locals_ == {} for *_, locals_ in heard), "the objects of a task are released in its own thread"


def test_the_exception_is_given_back_as_it_was() -> None:
    seen: list[Any] = []
    try:
        raise ValueError("x")
    except ValueError as caught:
        error, trace = caught, caught.__traceback__
    while_handling(RunError(error), lambda: seen.append(sys.exc_info()))
    assert seen == [(ValueError, error, trace)]
    assert (error.__traceback__, error.__context__) == (trace, None)
    while_handling(None, lambda: seen.append(sys.exc_info()))
    assert seen[1] == (None, None, None)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit, ValueError])
def test_whatever_a_receiver_raises_the_others_are_called(kind: Any) -> None:
    heard: list[Any] = []

    def raises(**_: Any) -> None:
        raise kind

    def receive(**more: Any) -> None:
        heard.append(more["job_id"])

    with connected(signals.task_finished, raises), connected(signals.job_settled, receive), working():
        jobs = [add.enqueue(number) for number in range(5)]
        ended(*jobs)
        until(lambda: len(heard) == 5, "all signals were sent")


def notify(**_: Any) -> None:
    """Hang until the test says so."""
    hanging.wait(30)


hanging = threading.Event()


@pytest.mark.django_db
def test_a_receiver_that_hangs_is_named_and_what_the_queue_cannot_hold_is_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "MAX_WAITING", 5)
    monkeypatch.setattr(module, "HANG_SECONDS", 0.05)
    hanging.clear()
    signal = Signal()
    announcer = Announcer()
    with connected(signal, notify):
        announcer.start()
        try:
            announcer.put(lambda item, _: signal.send_robust(None, number=item), [0])
            until(lambda: announcer.busy_seconds > 0.1)
            began = time.monotonic()
            announcer.put(lambda item, _: None, range(9), patience=5.0)
            assert time.monotonic() - began < 1, "no thread waits for a receiver that hangs"
            assert (announcer.waiting, announcer.dropped) == (6, 4)
            with caplog.at_level(logging.ERROR, "jobqueue"):
                announcer.report()
                announcer.report()
                until(lambda: bool(caplog.messages))
            told = health([announcer])
            worker = Worker(services={"announcer": {**told["announcer"], "busy": 12.0}})
        finally:
            hanging.set()
            until(lambda: not announcer.waiting)
            announcer.stop()
            assert announcer.join(5)
    assert len(caplog.messages) == 1, "once a minute"
    assert caplog.messages[0].startswith(f"{__name__}.notify has not returned for ")
    assert "6 signals wait and 4 were dropped" in caplog.messages[0]
    assert stuck_services(worker) == [f"a receiver of signals, {__name__}.notify, has not returned for 12 s; 6 signals wait"]


def test_a_full_queue_of_quick_receivers_makes_the_sender_wait_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITING", 50)
    sent: list[int] = []
    announcer = Announcer()
    announcer.start()
    try:
        announcer.put(lambda item, _: sent.append(item), range(5000), patience=10.0)
        until(lambda: not announcer.waiting)
    finally:
        announcer.stop()
        announcer.join(5)
    assert (sent, announcer.dropped) == (list(range(5000)), 0)


# TENANTS


numbers: Any = None


def slots() -> Any:
    return numbers()


@pytest.mark.django_db(transaction=True)
def test_tenants_that_hang_delay_no_job_and_keep_the_last_value(
    settings: Any, hang: Hang, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tenant_slots, "READ_SECONDS", 0.05)
    monkeypatch.setattr(tenant_slots, "HANG_SECONDS", 0.5)
    settings.JOBQUEUE = {"TENANTS": f"{__name__}.slots", "DELIVERY_GRACE_SECONDS": 0.2}
    monkeypatch.setattr(sys.modules[__name__], "numbers", lambda: {"acme": 3})
    with caplog.at_level(logging.ERROR, "jobqueue"), working() as worker:
        until(lambda: worker.parts.lanes.own == ["acme"])
        monkeypatch.setattr(sys.modules[__name__], "numbers", hang)
        assert hang.entered.wait(5)
        jobs = [add.using(tenant=name).enqueue(1) for name in ("acme", "globex", "acme")]
        assert ended(*jobs, seconds=5) == ["SUCCESS"] * 3
        assert worker.parts.lanes.own == ["acme"]
        until(lambda: any("TENANTS has not returned" in text for text in caplog.messages))


@pytest.mark.django_db(transaction=True)
def test_tenants_that_hang_from_the_start_delay_the_first_job_for_a_moment(
    settings: Any, hang: Hang, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.JOBQUEUE = {"TENANTS": hang, "DELIVERY_GRACE_SECONDS": 0.2}
    monkeypatch.setattr(tenant_slots, "FIRST_SECONDS", 0.3)
    with working():
        job = add.using(tenant="acme").enqueue(1)
        assert ended(job, seconds=5) == ["SUCCESS"]
