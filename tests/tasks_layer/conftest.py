"""Fixtures of these tests."""

from collections.abc import Iterator

import pytest

from jobqueue.declared import registry
from tests.tasks_layer import samples


@pytest.fixture(autouse=True)
def undeclared() -> Iterator[None]:
    """Forget the declaration of a function that each test declares with options of its own."""
    yield
    path = f"{samples.__name__}.undeclared"
    if path in registry.paths():
        registry.forget(path)
