"""The transactions of jobqueue are READ COMMITTED on PostgreSQL, whatever the settings of the project are."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connections, transaction

from jobqueue.db import LeaseHolder, Scope, claims
from jobqueue.db.postgresql import PostgreSQL
from tests.factories import JobFactory

pytestmark = pytest.mark.postgresql
LENDER = LeaseHolder("worker-1", 30.0)


@pytest.fixture
def strict(transactional_db: Any) -> Iterator[PostgreSQL]:
    """Make SERIALIZABLE the project's default for one connection."""
    usual = connections["default"]
    settings = copy.deepcopy(usual.settings_dict)
    settings["OPTIONS"]["isolation_level"] = 4  # psycopg's SERIALIZABLE
    connections["default"] = type(usual)(settings, alias="default")
    yield PostgreSQL("default", "jobqueue_job")
    connections["default"].close()
    connections["default"] = usual


def level(database: PostgreSQL) -> str:
    return str(database.rows("SHOW transaction_isolation")[0][0])


def test_a_transaction_of_jobqueue_uses_read_committed(strict: PostgreSQL) -> None:
    with transaction.atomic():
        assert level(strict) == "serializable"
    with strict.atomic():
        assert level(strict) == "read committed"
    with strict.read_committed_statement():
        assert level(strict) == "read committed"


def test_a_savepoint_inside_the_callers_transaction_leaves_its_level(strict: PostgreSQL) -> None:
    with transaction.atomic(), strict.atomic():
        assert level(strict) == "serializable"


def test_hot_statements_work_there(strict: PostgreSQL) -> None:
    job = JobFactory()
    assert [claimed.id for claimed in claims.claim(strict, LENDER, Scope(), 5)[0]] == [job.pk]


def test_a_claim_leaves_no_setting_behind(transactional_db: Any) -> None:
    database = PostgreSQL("default", "jobqueue_job")
    JobFactory()
    assert len(claims.claim(database, LENDER, Scope(), 5)[0]) == 1
    assert database.rows("SHOW enable_sort") == [("on",)]


def test_a_claim_works_with_server_side_binding(transactional_db: Any) -> None:
    usual = connections["default"]
    settings = copy.deepcopy(usual.settings_dict)
    settings["OPTIONS"]["server_side_binding"] = True
    connections["default"] = type(usual)(settings, alias="default")
    try:
        database = PostgreSQL("default", "jobqueue_job")
        JobFactory.create_batch(2)
        for queues in ((), ("default",), ("default", "mail")):
            assert len(claims.claim(database, LENDER, Scope("", queues), 1)[0]) == (0 if len(queues) == 2 else 1)
    finally:
        connections["default"].close()
        connections["default"] = usual
