"""Fixtures of all tests."""

from collections.abc import Iterator
from typing import Any

import pytest

# Declared under the suite's settings, not under those that a test puts in their place.
import demo_project.library.tasks
import demo_project.workload.tasks  # noqa: F401
from tests import order
from tests.rivals import Rival

VENDORS = {"postgresql": "needs what only PostgreSQL has", "sqlite": "speaks of SQLite"}


def pytest_configure(config: pytest.Config) -> None:
    """Name our marks."""
    for vendor, reason in VENDORS.items():
        config.addinivalue_line("markers", f"{vendor}: {reason}; skipped on the other database")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let what takes longest come first."""
    items.sort(key=order.seconds, reverse=True)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Share out the tests that start processes in an order of our own."""
    return order.LongestFirst(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that is meant for the other database."""
    from django.db import connection

    for vendor, reason in VENDORS.items():
        if item.get_closest_marker(vendor) and connection.vendor != vendor:
            pytest.skip(f"it {reason}")


@pytest.fixture
def rival(transactional_db: Any) -> Iterator[Rival]:
    """Lend a second party with its own connection; the test's data must be committed for it to see.

    The test itself waits for the other's locks no longer than five seconds: what ought to pass over a locked row then fails, not hangs.
    """
    from django.db import connection

    postgresql = connection.vendor == "postgresql"
    if postgresql:
        connection.cursor().execute("SET lock_timeout = '5s'")
    party = Rival()
    try:
        yield party
    finally:
        party.close()
        if postgresql:
            connection.close()  # and with it the setting
