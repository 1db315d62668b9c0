"""Run the tests of a module at the same time, each in a thread, with its own queue and workers, because they mostly wait."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, connections

from tests.faults.harness import Workers, empty_tables
from tests.pooler import POOLED

AT_ONCE = 4

_bodies: dict[str, dict[str, Callable[[Workers], Any]]] = {}


def at_once(body: Callable[[Workers], Any]) -> Callable[[Any], None]:
    """Make a test whose body runs concurrently with the other tests of its module, and which then reports its result."""
    _bodies.setdefault(body.__module__, {})[body.__name__] = body

    def test(outcomes: dict[str, Future[Any]]) -> None:
        outcomes[body.__name__].result()

    test.__name__ = test.__qualname__ = body.__name__
    test.__doc__, test.__module__ = body.__doc__, body.__module__
    # The marks of the body are the test's.
    test.pytestmark = list(getattr(body, "pytestmark", []))  # type: ignore[attr-defined]
    return test


def play(body: Callable[[Workers], Any]) -> Callable[[Workers], Any]:
    """Play a scene beside the tests of its module; a fixture asks `outcomes` for what it returned."""
    _bodies.setdefault(body.__module__, {})[body.__name__] = body
    return body


def _is_for_this_database(body: Callable[[Workers], Any]) -> bool:
    names = {mark.name for mark in getattr(body, "pytestmark", [])}
    if POOLED and "session" in names:
        return False
    return connection.vendor in names or not names & {"postgresql", "sqlite"}


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, django_db_setup: Any, django_db_blocker: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[Any]]]:
    """Run the scenes of the module and the bodies of its selected tests; the tables are emptied at the end."""
    selected = {item.name for item in request.session.items if item.fspath == request.path}
    found = {
        name: body
        for name, body in _bodies[request.module.__name__].items()
        if (name in selected or not name.startswith("test_")) and _is_for_this_database(body)
    }
    lock = threading.Lock()

    def run(name: str, body: Callable[[Workers], Any]) -> Any:
        with lock:
            directory = tmp_path_factory.mktemp("together")
        workers = Workers(Path(directory), queue=name[:60])
        try:
            return body(workers)
        finally:
            workers.clean_up()
            connections.close_all()

    with django_db_blocker.unblock():
        try:
            with ThreadPoolExecutor(AT_ONCE) as pool:
                futures = {name: pool.submit(run, name, body) for name, body in found.items()}
            yield futures
        finally:
            sys.stdout.flush()
            empty_tables()
