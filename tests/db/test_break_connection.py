"""A SQLite connection whose thread hangs in a transaction blocks all other writers until it is broken."""

from __future__ import annotations

import threading
import time

import pytest
from django.db import DatabaseError, OperationalError, connection, connections, transaction
from django.db.transaction import TransactionManagementError

from jobqueue.models import Job
from tests.factories import JobFactory
from tests.rivals import Rival

pytestmark = [pytest.mark.sqlite, pytest.mark.django_db(transaction=True)]


def test_the_transaction_is_undone_and_what_its_thread_still_does_there_is_refused(rival: Rival) -> None:
    broken, entered = threading.Event(), threading.Event()
    found: list[object] = []

    def hang() -> None:
        found.append(connections["default"])
        with Job.objects.database.atomic():
            JobFactory(queue="theirs")
            try:
                with transaction.atomic():  # as around a hook
                    JobFactory(queue="theirs")
                    entered.set()
                    broken.wait(20)
                    JobFactory(queue="theirs")
            except DatabaseError as error:
                found.append(error)
            JobFactory(queue="theirs")

    call = rival.start(hang)
    assert entered.wait(10)
    Job.objects.database.break_connection(found[0])
    JobFactory(queue="ours")
    broken.set()
    with pytest.raises(TransactionManagementError):
        call.result(20)
    assert isinstance(found[1], TransactionManagementError)
    assert list(Job.objects.values_list("queue", flat=True)) == ["ours"]
    rival.do(JobFactory, queue="theirs")
    assert Job.objects.count() == 2, "the connection is good again"


def test_a_statement_that_does_not_end_is_interrupted() -> None:
    database, mine, began = Job.objects.database, Job.objects.database.connection, time.monotonic()
    mine.ensure_connection()
    cut = threading.Timer(0.2, lambda: database.break_connection(mine))
    cut.start()
    with pytest.raises(OperationalError), connection.cursor() as cursor:
        cursor.execute("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n")
    assert time.monotonic() - began < 5.0
    cut.join()


def test_a_connection_that_is_closed_or_idle_stays_as_it_is() -> None:
    Job.objects.database.break_connection(connection)
    JobFactory()
    connection.close()
    Job.objects.database.break_connection(connection)
    assert Job.objects.count() == 1
