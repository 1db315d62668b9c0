"""Runs and collectors for tests of single parts, without a database."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from jobqueue.db import Claimed
from jobqueue.declared.registry import RegisteredTask
from jobqueue.lifecycle.outcome import Kind, Outcome
from jobqueue.worker.running.run import Run

PATIENCE_SECONDS = 10.0


def run_of(function: Callable[..., Any], *, is_async: bool = False, number: int = 1, takes_context: bool = False, **job: Any) -> Run:
    """Return a claimed run of a function that needs no registration."""
    values: dict[str, Any] = dict.fromkeys(Claimed._fields, "")
    values |= {"id": number, "claim_rank": 0, "lease_token": 1, "attempt": 1, "failures": 0, "crashes": 0}
    values |= {"max_attempts": 1, "recovery": "requeue", "task": "tests.function", "queue": "default"}
    values |= {"args": "[]", "kwargs": "{}", "options": "{}", "metadata": "{}"}
    run = Run(Claimed(**values | job), lambda run: None, lambda run: None)
    run.entry = RegisteredTask(
        "tests.function", None, function, is_async, takes_context, (Exception,), lambda error, failures: 0.0, transactional=False
    )
    return run


class Collector:
    """Keep the outcomes that a part puts."""

    def __init__(self) -> None:
        self.outcomes: list[tuple[Run, Outcome]] = []
        self._changed = threading.Condition()

    def put(self, run: Run, outcome: Outcome) -> None:
        """Take an outcome."""
        with self._changed:
            self.outcomes.append((run, outcome))
            self._changed.notify_all()

    def wait(self, number: int) -> list[Kind]:
        """Return the kinds of the outcomes, in order, when there are this many."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.outcomes) >= number, PATIENCE_SECONDS), f"{len(self.outcomes)} of {number}"
            return [outcome.kind for _, outcome in self.outcomes]
