"""Hooks and signals of the retention: what they get, and what happens if one raises, ends its process or takes long."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError
from django.db.models.signals import pre_delete

from jobqueue import signals
from jobqueue.exceptions import LeadershipLost
from jobqueue.models import Job
from jobqueue.retention import erase
from tests.lifecycle.sweeps import deleting, ended, heard, left, many, marking
from tests.rivals import Rival
from tests.shop.models import Note, Parcel


@pytest.mark.django_db
def test_the_signal_names_what_was_deleted() -> None:
    job = ended("canceled", queue="mail", target="customer:7", tenant="")
    with heard(signals.job_deleted) as told:
        deleting().run(60)
    (values,) = told
    values.pop("signal")
    assert values == {
        "job_id": job.pk,
        "task": job.task,
        "queue": "mail",
        "tenant": "",
        "target": "customer:7",
        "status": "CANCELED",
        "finished_at": values["finished_at"],
    }
    assert abs(values["finished_at"] - job.finished_at) < timedelta(milliseconds=2)


@pytest.mark.django_db
def test_hooks_get_each_job_whole_and_with_its_children() -> None:
    job = ended(result={"answer": 42})
    Parcel.objects.create(job=job)
    seen: list[tuple[int, Any, Any, int]] = []

    def look(one: Job) -> None:
        seen.append((one.pk, one.result, one.stale_at is not None, Parcel.objects.filter(job_id=one.pk).count()))

    assert marking(on_stale=look).run(60).stale == 1
    assert deleting(on_delete=look).run(60).deleted == 1
    assert seen == [(job.pk, {"answer": 42}, True, 1)] * 2
    assert not left()


@pytest.mark.django_db
@pytest.mark.parametrize("make", [marking, deleting])
def test_a_hook_that_raises_is_logged_undone_and_stops_nothing(make: Any, caplog: pytest.LogCaptureFixture) -> None:
    jobs = [ended(), ended(), ended()]

    def hook(job: Job) -> None:
        Note.objects.create()
        if job.pk == jobs[1].pk:
            raise RuntimeError("no room in the archive")

    name = "on_stale" if make is marking else "on_delete"
    done = make(**{name: hook}).run(60)
    assert done.deleted + done.stale == 3
    assert Note.objects.count() == 2
    (record,) = [one for one in caplog.records if one.levelno == logging.ERROR]
    assert f"{name.upper()} raised an error for job {jobs[1].pk}" in record.getMessage()


@pytest.mark.django_db
@pytest.mark.parametrize("make", [marking, deleting])
def test_a_hook_that_ends_its_process_ends_nothing_but_its_own_call(make: Any, caplog: pytest.LogCaptureFixture) -> None:
    jobs = [ended(), ended()]

    def leave(job: Job) -> None:
        Note.objects.create()
        if job.pk == jobs[0].pk:
            raise SystemExit(3)

    done = make(**{"on_stale" if make is marking else "on_delete": leave}).run(60)
    assert (done.deleted + done.stale, Note.objects.count()) == (2, 1)
    assert [one.getMessage().split(";")[0] for one in caplog.records if one.exc_info] == [
        f"ON_{'STALE' if make is marking else 'DELETE'} raised an error for job {jobs[0].pk} ({jobs[0].task})"
    ]


@pytest.mark.django_db
@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit(), asyncio.CancelledError()])
@pytest.mark.parametrize("make", [marking, deleting])
def test_a_receiver_that_exits_does_not_prevent_the_signals_of_the_rest(make: Any, error: BaseException) -> None:
    jobs, told = [ended(), ended()], list[int]()

    def listen(sender: Any, job_id: int, **_: Any) -> None:
        told.append(job_id)
        raise error

    signal = signals.job_stale if make is marking else signals.job_deleted
    signal.connect(listen)
    try:
        done = make().run(60)
    finally:
        signal.disconnect(listen)
    assert (done.deleted + done.stale, told) == (2, [job.pk for job in jobs])


@pytest.mark.django_db
def test_a_receiver_of_what_goes_with_a_job_that_ends_its_process_keeps_that_job_alone() -> None:
    jobs = [ended(), ended()]

    def leave(sender: Any, instance: Job, **_: Any) -> None:
        if instance.pk == jobs[0].pk:
            raise SystemExit(3)

    pre_delete.connect(leave, sender=Job)
    try:
        done = deleting().run(60)
    finally:
        pre_delete.disconnect(leave, sender=Job)
    assert (done.deleted, done.set_aside, left()) == (1, 1, {jobs[0].pk})


@pytest.mark.django_db
def test_a_person_and_a_lost_leadership_end_a_sweep_inside_of_a_hook_and_its_work_is_undone() -> None:
    many(2)
    for error in (KeyboardInterrupt, LeadershipLost):
        calls = list[int]()

        def hook(job: Job, error: type[BaseException] = error, calls: list[int] = calls) -> None:
            calls.append(job.pk)
            raise error

        with pytest.raises(error):
            deleting(on_delete=hook).run(60)
        assert (len(calls), len(left())) == (1, 2)


class Clock:
    """Stop the clock until a hook sets how long it took."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.mark.long
@pytest.mark.django_db
@pytest.mark.parametrize("make", [marking, deleting])
def test_runs_stay_short_with_a_slow_hook_that_is_called_once_for_each(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(erase, "time", clock)
    jobs = many(600)
    called: list[int] = []

    def hook(job: Job) -> None:
        called.append(job.pk)
        clock.now += 0.1

    sweep = make(**{"on_stale" if make is marking else "on_delete": hook})
    took: list[float] = []
    done, more = 0, True
    while more:
        began = clock.now
        run = sweep.run(1.0)
        done, more = done + run.deleted + run.stale, run.more
        took.append(clock.now - began)
        assert len(took) <= 100
        assert done == len(called)  # nothing is kept whose hook was called
    assert (done, called) == (600, jobs)
    assert max(took) < 1.2
    assert not left() or make is marking


@pytest.mark.django_db
def test_a_hook_that_takes_longer_than_the_run_is_called_for_one_job_in_each() -> None:
    jobs, called = many(3), list[int]()
    sweep = deleting(on_delete=lambda job: called.append(job.pk))
    runs = [sweep.run(0.0) for _ in range(3)]
    assert ([run.deleted for run in runs], called) == ([1, 1, 1], jobs)


@pytest.mark.postgresql
def test_jobs_locked_beyond_the_end_of_the_time_are_neither_lost_nor_done_twice(rival: Rival) -> None:
    first, locked, last = ended(), ended(), ended()
    called: list[int] = []
    sweep = deleting(on_delete=lambda job: called.append(job.pk))
    with rival.locking(locked):
        assert [sweep.run(0.0).deleted for _ in range(3)] == [1, 1, 0]
    assert sweep.run(0.0).deleted == 1
    assert called == [first.pk, last.pk, locked.pk]


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
def test_batches_are_smaller_after_a_run_whose_connection_was_cut() -> None:
    many(600)

    def cut(job: Job) -> None:
        raise OperationalError("the connection is closed")

    sweep = deleting(on_delete=cut)
    with pytest.raises(OperationalError):
        sweep.run(60)
    assert sweep._pace.size == erase.BATCH // 2
    sweep._walks[0].hook = None
    assert sweep.run(60).deleted == 600


@pytest.mark.django_db
def test_a_hook_and_a_listener_are_inside_of_the_jobs_tenant(settings: Any) -> None:
    inside: list[str] = []
    seen: list[tuple[str, list[str]]] = []

    @contextlib.contextmanager
    def context(tenant: str) -> Iterator[None]:
        inside.append(tenant)
        yield
        inside.pop()

    def listen(sender: Any, tenant: str, **_: Any) -> None:
        seen.append((tenant, [*inside]))

    settings.JOBQUEUE = {"TENANT_CONTEXT": context}
    ended(tenant="acme")
    signals.job_deleted.connect(listen)
    try:
        deleting(on_delete=lambda job: seen.append((job.tenant, [*inside]))).run(60)
    finally:
        signals.job_deleted.disconnect(listen)
    assert seen == [("acme", ["acme"])] * 2
