"""Tests of transactions: an enqueue in a database is part of the caller's transaction."""

# ruff: noqa: PT009, PT027 - for every runner of unittest's cases, so with their own assertions

from __future__ import annotations

from collections.abc import Callable

from django.db import transaction

from jobqueue import compat
from jobqueue.testing.conformance.base import STATUS, Conformance


class Undo(Exception):
    """The exception that rolls a test's transaction back."""


class TransactionTests(Conformance):
    """Tests of backends that name the database of their jobs in `rolls_back_with`."""

    def test_an_enqueue_that_was_rolled_back_never_existed(self) -> None:
        """If the transaction is rolled back, the task has no result and does not run."""
        result_id = self.undone(lambda: self.sample("echo").enqueue(1).id)
        self.assert_nothing_is_left(result_id)

    def test_a_rolled_back_savepoint_takes_its_enqueue_along(self) -> None:
        """The task of the inner block is gone, and the task of the outer block runs."""
        self.needs_transactions()
        with transaction.atomic(using=self.rolls_back_with):
            outer = self.sample("echo").enqueue("outer")
            inner_id = self.undone(lambda: self.sample("echo").enqueue("inner").id)
        self.assert_nothing_is_left(inner_id)
        self.assertEqual(self.look(outer).status, STATUS.SUCCESSFUL)

    def test_a_refused_argument_leaves_the_transaction_usable(self) -> None:
        """After a refusal the caller can continue in the same transaction."""
        self.needs_transactions()
        with transaction.atomic(using=self.rolls_back_with):
            for value in (object(), "a\0b", "\ud800", float("nan"), {1: 2}):
                with self.subTest(repr(value)), self.assertRaises((TypeError, ValueError)):
                    self.sample("echo").enqueue(value)
            result = self.sample("echo").enqueue("good")
        self.run_enqueued()
        self.assertEqual(self.look(result).return_value, "good")

    def needs_transactions(self) -> None:
        """Skip the test if an enqueue is not part of a transaction."""
        if not self.rolls_back_with:
            self.skipTest("An enqueue takes part in no transaction.")

    def undone(self, enqueue: Callable[[], str]) -> str:
        """Enqueue in a transaction that is rolled back; return the id of the task."""
        self.needs_transactions()
        ids: list[str] = []
        try:
            with transaction.atomic(using=self.rolls_back_with):
                ids.append(enqueue())
                self.assertEqual(self.backend.get_result(ids[0]).id, ids[0])
                raise Undo
        except Undo:
            return ids[0]

    def assert_nothing_is_left(self, result_id: str) -> None:
        """Check that no result of an enqueue exists, also after a run."""
        for _ in range(2):
            with self.assertRaises(compat.TaskResultDoesNotExist):
                self.backend.get_result(result_id)
            self.run_enqueued()
