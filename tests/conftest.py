"""Fixtures of all tests."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import call_command

# Declared under the suite's settings, not under those that a test puts in their place.
import demo_project.library.tasks
import demo_project.workload.tasks  # noqa: F401
from demo_project import schema
from jobqueue.core import recent, repeats
from jobqueue.db.fast_path import switch
from tests import order
from tests.pooler import POOLED, end_sessions
from tests.rivals import Rival

PLAIN = os.environ.get("TEST_FAST_PATH") == "0"
VENDORS = {"postgresql": "is for PostgreSQL only", "sqlite": "is for SQLite only"}


def pytest_configure(config: pytest.Config) -> None:
    """Register the marks of the suite, and turn the fast path off if ``TEST_FAST_PATH`` is 0."""
    if PLAIN:  # for all tests, whatever settings they make
        switch.is_on = lambda: False
    config.addinivalue_line("markers", "fast_path: needs the fast path of PostgreSQL; skipped without it")
    config.addinivalue_line("markers", "session: needs a session of its own for longer than a transaction; skipped behind a pooler")
    for vendor, reason in VENDORS.items():
        config.addinivalue_line("markers", f"{vendor}: {reason}; skipped on the other database")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the slowest tests first."""
    items.sort(key=order.seconds, reverse=True)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Distribute the tests that start processes in the order of `tests.order`."""
    return order.LongestFirst(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that is meant for the other database."""
    from django.db import connection

    for vendor, reason in VENDORS.items():
        if item.get_closest_marker(vendor) and connection.vendor != vendor:
            pytest.skip(f"it {reason}")
    if PLAIN and item.get_closest_marker("fast_path"):
        pytest.skip("it needs the fast path")
    if POOLED and item.get_closest_marker("session"):
        pytest.skip("it needs a session of its own, which a pooler does not give")


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, request: pytest.FixtureRequest, django_db_blocker: Any) -> Iterator[None]:
    """Make a kept database of an older schema anew; at the end, close what a pooler keeps open: the database cannot be dropped before."""
    from django.db import connection, connections

    if request.config.getoption("reuse_db"):
        with django_db_blocker.unblock():
            renew(connection)
    yield
    if POOLED:
        connections.close_all()
        end_sessions(connection.settings_dict)


def renew(connection: Any) -> None:
    """Make a kept database anew if it has the schema of an earlier checkout."""
    if schema.is_old(connection):
        schema.drop_tables(connection)
        call_command("migrate", interactive=False, verbosity=0)
    schema.record(connection)


@pytest.fixture(autouse=True)
def first_lines() -> None:
    """Count each test's log lines as the first of their kind, and its results as the first ones that a page needs."""
    repeats.forget()
    recent.forget()


@pytest.fixture
def small_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a search cover all jobs. The numbers of jobs rise from test to test, so the table may seem to have very many."""
    from jobqueue.admin import listing
    from jobqueue.insight import search

    for module in (search, listing):
        monkeypatch.setattr(module, "WINDOW", 10**12)


@pytest.fixture
def shown_in_utc() -> Iterator[None]:
    """Make pages show times in UTC, whatever the suite's ``TIME_ZONE`` is."""
    from django.utils import timezone

    with timezone.override("UTC"):
        yield


@pytest.fixture
def rival(transactional_db: Any) -> Iterator[Rival]:
    """Provide a second client with its own connection; it sees only committed data of the test.

    The test waits at most five seconds for that client's locks, so a statement that must skip a locked row fails and does not hang.
    """
    from django.db import connection

    limited = connection.vendor == "postgresql" and not POOLED  # behind a pooler, other clients would get the limit, too
    if limited:
        connection.cursor().execute("SET lock_timeout = '5s'")
    party = Rival()
    try:
        yield party
    finally:
        party.close()
        if limited:
            connection.close()  # and with it the setting
