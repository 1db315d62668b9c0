"""What the row of a worker has about its services."""

from __future__ import annotations

from typing import Any

import pytest

from jobqueue import conf
from jobqueue.core.service import Service
from jobqueue.insight.workers import stuck_services
from jobqueue.models import Worker
from jobqueue.worker.process.identity import Identity
from jobqueue.worker.process.show import health, show

pytestmark = pytest.mark.django_db


class Failing(Service):
    """Fail at each turn."""

    name = "failing"

    def turn(self) -> float | None:
        raise OSError("no route to host")


def test_a_service_reports_its_last_good_turn_its_present_one_and_its_failures_in_a_row() -> None:
    service = Failing(lambda *_: None)
    service._attempt(service.turn)
    service._attempt(service.turn)
    service.last_good_turn -= 30
    show(Identity(), conf.current(), Worker.State.RUNNING, slots=2, running=0, stuck=0, services=health([service]))
    [worker] = Worker.objects.all()
    assert worker.services["failing"]["failures"] == 2
    assert stuck_services(worker) == ["its failing has failed 2 times in a row, for 30 s"]


def test_a_service_in_a_long_turn_is_stuck_and_one_that_rests_is_not() -> None:
    service = Failing(lambda *_: None)
    service.last_good_turn -= 3600
    assert stuck_services(Worker(services=health([service]))) == []
    service.turn_began = service.last_good_turn
    assert stuck_services(Worker(services=health([service]))) == ["its failing has not completed its current turn for 3600 s"]


def test_the_row_names_the_release_of_the_project(settings: Any) -> None:
    settings.JOBQUEUE = {"RELEASE": lambda: "2026.11"}
    show(Identity(), conf.current(), Worker.State.RUNNING, slots=2, running=0, stuck=0, services={})
    assert Worker.objects.get().release == "2026.11"
