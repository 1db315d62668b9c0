"""Fixtures of several modules: a recorded context of tenants, and a scene for runs with a time limit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.worker.limited import Scene
from tests.worker.places import Place


@pytest.fixture
def place(settings: Any) -> Iterator[type[Place]]:
    """Make the recorded context that of the project."""
    settings.JOBQUEUE = {"TENANT_CONTEXT": "tests.worker.places.Place"}
    yield Place
    Place.told, Place.fail_at, Place.at_exit = [], {}, None
    Place.here.tenant = ""


@pytest.fixture
def scene() -> Iterator[Scene]:
    """Make a scene for runs with a time limit; a module with other parts has a scene of its own."""
    made = Scene()
    yield made
    made.close()
