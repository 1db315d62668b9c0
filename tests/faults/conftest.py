"""Fixtures of the fault tests."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.harness import Workers, empty_tables
from tests.faults.together import outcomes

__all__ = ["outcomes"]


@pytest.fixture
def workers(transactional_db: Any, tmp_path: Path) -> Iterator[Workers]:
    """Start workers on the test's database; they end before the database is emptied."""
    from jobqueue.models import Job

    Job.objects.all().erase()  # what the scenes of the module have left: this worker serves all queues
    made = Workers(tmp_path)
    try:
        yield made
    finally:
        made.clean_up()


@pytest.fixture(scope="module")
def shared_workers(django_db_setup: Any, django_db_blocker: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    """Start workers for one scene that the tests of a module check afterwards; empty the tables at the end."""
    made = Workers(tmp_path_factory.mktemp("faults"))
    with django_db_blocker.unblock():
        try:
            yield made
        finally:
            made.clean_up()
            empty_tables()
