"""The wait for notifications: it returns at once, costs nothing while there are none, and ends with its connection."""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Iterator

import pytest
from django.db import OperationalError, connection

from jobqueue.models import Job
from tests.rivals import Rival

pytestmark = [pytest.mark.postgresql, pytest.mark.session, pytest.mark.django_db(transaction=True)]
CHANNEL = "jobqueue_test"


@pytest.fixture(autouse=True)
def listening() -> Iterator[None]:
    Job.objects.database.listen(CHANNEL)
    yield
    connection.close()


def tell(payload: str) -> None:
    Job.objects.database.notify(CHANNEL, payload)


def test_it_receives_a_notification_at_once_while_it_waits(rival: Rival) -> None:
    began = time.monotonic()
    soon = threading.Timer(0.2, lambda: rival.start(tell, "one"))
    soon.start()
    assert Job.objects.database.wait_for_notifications(10.0) == ["one"]
    assert time.monotonic() - began < 5.0
    soon.join()


def test_it_receives_a_notification_from_before_it_waited(rival: Rival) -> None:
    rival.do(tell, "one")
    rival.do(tell, "two")
    found: list[str] = []
    while len(found) < 2 and (more := Job.objects.database.wait_for_notifications(10.0)):  # the server may send them one by one
        found += more
    assert found == ["one", "two"]
    assert Job.objects.database.wait_for_notifications(0.05) == []


@pytest.mark.long
def test_it_wakes_up_rarely_while_there_is_no_notification() -> None:
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
    began = time.monotonic()
    assert Job.objects.database.wait_for_notifications(1.0) == []
    assert time.monotonic() - began >= 0.9
    assert resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - before <= 4, "ten times, as the driver does"


def test_a_wait_whose_connection_is_cut_ends_with_an_error() -> None:
    database, mine, began = Job.objects.database, Job.objects.database.connection, time.monotonic()
    cut = threading.Timer(0.2, lambda: database.break_connection(mine))
    cut.start()
    with pytest.raises(OperationalError):
        database.wait_for_notifications(10.0)
    assert time.monotonic() - began < 5.0
    cut.join()
