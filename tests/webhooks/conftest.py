"""Fixtures of the tests of webhooks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.webhooks.receivers import SECRET, Answer, Receiver

Listen = Callable[..., Receiver]


@pytest.fixture
def listen() -> Iterator[Listen]:
    """Start receivers; they are closed with the test."""
    started: list[Receiver] = []

    def start(answer: Answer, **options: Any) -> Receiver:
        started.append(Receiver(answer, **options))
        return started[-1]

    yield start
    for one in started:
        one.close()


@pytest.fixture
def local(settings: Any) -> None:
    """Allow receivers on loopback, and sign."""
    settings.JOBQUEUE = {"WEBHOOK_ALLOWED_HOSTS": ["127.0.0.0/8"], "WEBHOOK_SECRET": SECRET, "WEBHOOK_TIMEOUT_SECONDS": 1}
