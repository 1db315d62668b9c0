"""Rows of workers without a heartbeat for a day are deleted; newer ones stay, so that operators can see which workers died."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from jobqueue.duties import forget_dead_workers
from jobqueue.duties.base import Report
from jobqueue.duties.forget_dead_workers import ForgetDeadWorkers
from jobqueue.models import LeftWorker, Worker
from tests.factories import WorkerFactory
from tests.rivals import Rival


def silent(**ago: float) -> Any:
    return WorkerFactory(heartbeat_at=timezone.now() - timedelta(**ago))


@pytest.mark.django_db
def test_only_workers_without_a_heartbeat_for_a_day_are_deleted() -> None:
    kept = [silent(seconds=0), silent(hours=1), silent(hours=23)]
    silent(hours=25)
    silent(days=40)
    duty = ForgetDeadWorkers()
    assert duty.run_once(timezone.now()) == Report(items=2)
    assert duty.run_once(timezone.now()) == Report()
    assert set(Worker.objects.values_list("pk", flat=True)) == {worker.pk for worker in kept}
    assert list(LeftWorker.objects.values_list("how", flat=True)) == ["silent", "silent"]


@pytest.mark.django_db
def test_very_many_go_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forget_dead_workers, "BATCH", 2)
    for _ in range(3):
        silent(days=2)
    duty = ForgetDeadWorkers()
    assert [duty.run_once(timezone.now()) for _ in range(2)] == [Report(items=2, again=True), Report(items=1)]


@pytest.mark.postgresql
def test_a_row_that_is_locked_is_not_waited_for(rival: Rival) -> None:
    dead = silent(days=2)
    with rival.transaction():
        rival.do(lambda: Worker.objects.select_for_update().get(pk=dead.pk))
        assert ForgetDeadWorkers().run_once(timezone.now()) == Report()
    assert ForgetDeadWorkers().run_once(timezone.now()) == Report(items=1)
