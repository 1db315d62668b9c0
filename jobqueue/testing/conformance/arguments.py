"""Tests of arguments: they arrive as they were given, or ``enqueue`` refuses them."""

# ruff: noqa: PT009, PT027 - for every runner of unittest's cases, so with their own assertions

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from jobqueue.testing.conformance.base import Conformance

GOOD: dict[str, Any] = {
    "nothing": None,
    "a truth value": True,
    "a whole number": -7,
    "a big whole number": 2**53 - 1,
    "a fraction": 0.1,
    "text": "naïve ☃ 𝄞 \\ \" ' \t\n",
    "an empty text": "",
    "an empty list": [],
    "an empty dict": {},
    "nested": {"a": [1, {"b": [None, False, "x"]}], "": {}},
}
NEVER: dict[str, Any] = {
    "an object": object(),
    "a function": len,
    "a set": {1, 2},
    "a complex number": 1j,
    "bytes that are no text": b"\xff\xfe",
}
CHANGED: dict[str, Any] = {
    "not a number": float("nan"),
    "infinity": float("inf"),
    "a key that is no text": {1: "one"},
    "bytes": b"text",
    "a time": datetime(2030, 1, 1, tzinfo=UTC),
    "a date": date(2030, 1, 1),
    "a decimal": Decimal("1.5"),
    "a UUID": uuid.UUID(int=1),
    "a NUL character": "a\0b",
    "a lone surrogate": "\ud800",
}


class ArgumentTests(Conformance):
    """Tests of the arguments that tasks receive."""

    def test_arguments_arrive_as_they_were_given(self) -> None:
        """A value that JSON can represent arrives equal and of the same type."""
        self.needs_runs()
        results = {kind: self.sample("echo").enqueue(value) for kind, value in GOOD.items()}
        self.run_enqueued()
        for kind, value in GOOD.items():
            with self.subTest(kind):
                arrived = self.look(results[kind]).return_value
                self.assertEqual((arrived, type(arrived)), (value, type(value)))

    def test_named_arguments_arrive_by_name(self) -> None:
        """Positional and named arguments arrive in their places."""
        result = self.run_sample("echo", 1, 2, third=3)
        self.assertEqual(result.return_value, {"args": [1, 2], "kwargs": {"third": 3}})

    def test_a_tuple_arrives_as_a_list(self) -> None:
        """JSON's only sequence is the list, in the result as well as in the task."""
        result = self.sample("echo").enqueue((1, (2,)))
        self.assertEqual(result.args, [[1, [2]]])
        if self.runs:
            self.run_enqueued()
            self.assertEqual(self.look(result).return_value, [1, [2]])

    def test_what_json_does_not_have_is_refused(self) -> None:
        """``enqueue`` raises a TypeError or a ValueError, by position and by name, and enqueues nothing."""
        for kind, value in NEVER.items():
            self.assert_refused(kind, value)

    def test_what_would_come_back_changed_is_refused(self) -> None:
        """An argument that would arrive changed is refused, and not changed silently."""
        if not self.strict_arguments:
            self.skipTest("The backend is not strict about arguments.")
        for kind, value in CHANGED.items():
            self.assert_refused(kind, value)

    def assert_refused(self, kind: str, value: Any) -> None:
        """Check that a value is refused by position, by name, and inside a list."""
        for args, kwargs in (((value,), {}), ((), {"value": value}), (([{"deep": value}],), {})):
            with self.subTest(kind, args=bool(args)), self.assertRaises((TypeError, ValueError)):
                self.sample("echo").enqueue(*args, **kwargs)
