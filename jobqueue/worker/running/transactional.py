"""Run a transactional task: its writes to the job database and the end of its job are committed in one transaction.

The transaction does not write the job's row before it has locked the job's target; progress goes through another connection. The finish
is the last statement before the commit, on the task's own connection. If it changes no row, the lease was lost and everything is undone.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from django.db import Error, transaction

from jobqueue import conf, db, failure_log
from jobqueue.core import texts
from jobqueue.core.forks import exit_if_forked, process_id
from jobqueue.db import task_transaction
from jobqueue.exceptions import LeaseLost, TransactionUndone, is_for_the_process
from jobqueue.lifecycle.finish import finish_with_work
from jobqueue.lifecycle.outcome import Outcome, Settled
from jobqueue.lifecycle.release import lock
from jobqueue.models import Job
from jobqueue.tasks.placement import check_place
from jobqueue.worker.running.run import MESSAGES, Reason, Run

PAUSE_SECONDS = 0.01

logger = logging.getLogger("jobqueue")


def call_in_transaction(run: Run, call: Callable[[], Any], success: Callable[[Run], Outcome]) -> None:
    """Call the task and write its success in one transaction; if either fails, undo everything and raise."""
    if run.entry is not None:
        check_place(run.entry.task)
    database = Job.objects.database
    connection = transaction.get_connection(database.alias)
    was_inside = connection.in_atomic_block
    run.saves_with_outcome = database.one_writer
    process = process_id()
    with database.atomic():
        began = time.monotonic()  # after the wait for other writers, which does not count
        task_transaction.mark(connection)
        blocks = list(connection.atomic_blocks)
        try:
            run.value = call()
        except BaseException as error:
            exit_if_forked(process, error)  # before the rollback, which would be sent through the parent's connection
            run.close()  # the task is over: no exception may be thrown into the rollback
            _end_what_was_left_open(connection, blocks)
            raise
        exit_if_forked(process)
        _check_transaction_intact(connection, blocks)
        # From here on nothing interrupts this thread: the success is committed, or everything is rolled back.
        run.close()
        outcome = success(run)
        _finish(outcome)
        committed_at: list[float] = []
        if not was_inside:
            _guard_callbacks(run, outcome, connection, lambda: committed_at.append(time.monotonic()))
    if connection.in_atomic_block != was_inside:
        raise TransactionUndone("The transaction of the task did not end, so its work is undone.")
    outcome.committed = True
    run.committed = outcome
    open_seconds = (committed_at[0] if committed_at else time.monotonic()) - began  # without the callbacks of on_commit
    if database.one_writer and open_seconds > conf.current().lease_seconds / 2:
        text = "Job %s (%s) kept its transaction open for %.0f s, which blocked all other writers of this database."
        logger.warning(text, run.job.id, run.job.task, open_seconds)


def _guard_callbacks(run: Run, outcome: Outcome, connection: Any, committed: Callable[[], object]) -> None:
    """Record the commit before the task's on_commit callbacks run, and log what they raise: the job has succeeded."""

    def note() -> None:
        committed()
        outcome.committed = True
        run.committed = outcome

    guarded = [(savepoints, partial(_call_back, run, callback), robust) for savepoints, callback, robust in connection.run_on_commit]
    connection.run_on_commit = [(set(), note, False), *guarded]


def _call_back(run: Run, callback: Callable[[], Any]) -> None:
    try:
        callback()
    except BaseException as error:  # also SystemExit and the like: the remaining callbacks are called, too
        if is_for_the_process(error):
            raise
        extra = {"job_id": run.job.id, "task": run.job.task, "queue": run.job.queue}
        line = "Job %s (%s) has succeeded, but one of its on_commit callbacks failed: %s"
        values = (run.job.id, run.job.task, texts.exception_summary(error, run.mask))
        failure = failure_log.RunError(error, texts.error_text(error, hide=run.mask), mask=run.mask)
        failure_log.while_handling(failure, partial(failure_log.log, logging.ERROR, line, *values, extra=extra))


def _check_transaction_intact(connection: Any, blocks: list[Any]) -> None:
    """Raise `TransactionUndone` if the task did not leave its transaction as it found it."""
    if _end_what_was_left_open(connection, blocks):
        raise TransactionUndone("The task left an atomic block open, so its work is undone. Use 'with transaction.atomic():'.")
    if connection.atomic_blocks != blocks:
        raise TransactionUndone(
            "The task ended an atomic block that it had not entered, so its work and the end of its job cannot be committed together."
        )
    if wrong := task_transaction.complaint(connection):
        raise TransactionUndone(f"The task {wrong}")


def _end_what_was_left_open(connection: Any, blocks: list[Any]) -> bool:
    """Undo and end the atomic blocks that were opened after `blocks`; return whether there were any.

    Exiting the outer block first would end only the innermost one, and the transaction would stay open.
    """
    left_open = connection.atomic_blocks[len(blocks) :]
    for block in reversed(left_open):
        block.__exit__(TransactionUndone, None, None)
    return bool(left_open)


def _finish(outcome: Outcome) -> None:
    # Waiting for this lock cannot deadlock: this transaction has not locked the job's row, so no holder of the lock waits for it.
    if outcome.target is not None:
        lock([outcome.target])
    while True:
        settled = _write_finish(outcome)
        if settled.written:
            return
        if not settled.later:
            raise LeaseLost(MESSAGES[Reason.LOST])
        _pause()  # a heartbeat or an operator has locked the row


def _write_finish(outcome: Outcome) -> Settled:
    try:
        return finish_with_work(outcome)
    except (Error, ValueError, TypeError) as error:
        if not db.is_refusal(error):
            raise
        raise TransactionUndone("The database refuses the job's result, message or metadata, so its work is undone.") from error


def _pause() -> None:
    import threading

    threading.Event().wait(PAUSE_SECONDS)
