"""Replay traces of the protocol's model: actors on connections of their own that stop between statements, and removed rules."""

from __future__ import annotations

import inspect
import textwrap
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from django.db import connection

from tests.rivals import PATIENCE_SECONDS, Rival


def without(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, words: str, instead: str) -> None:
    """Take a rule out of the product: replace these words in the source of one of its functions."""
    function = inspect.unwrap(getattr(owner, name))
    source = textwrap.dedent(inspect.getsource(function))
    assert words in source, f"{name} has no {words!r}: the rule has moved"
    scope: dict[str, Any] = {}
    exec(compile(source.replace(words, instead), f"<{name} without a rule>", "exec"), function.__globals__, scope)  # noqa: S102
    monkeypatch.setattr(owner, name, scope[function.__name__])


class Actor:
    """Run one verb in a thread, and stop it before the first statement that has certain words."""

    def __init__(self, rival: Rival, call: Callable[..., Any], *args: Any, before: str) -> None:
        """Start, and return when it waits at the breakpoint."""
        self._words, self._arrived, self._go = before, threading.Event(), threading.Event()
        self._ending: Future[Any] = rival.start(self._run, call, args)
        assert self._arrived.wait(PATIENCE_SECONDS), f"it never came to {before!r}"

    def _run(self, call: Callable[..., Any], args: Any) -> Any:
        with connection.execute_wrapper(self._gate):
            return call(*args)

    def _gate(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if self._words in sql and not self._arrived.is_set():
            self._arrived.set()
            assert self._go.wait(PATIENCE_SECONDS)
        return execute(sql, params, many, context)

    def go_on(self) -> Any:
        """Resume it until its end; return its result."""
        self._go.set()
        return self._ending.result(PATIENCE_SECONDS)
