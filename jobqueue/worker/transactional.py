"""Run a task whose work in the job database and the end of its job are one transaction.

Nothing in it writes the job's row before its target's lock is taken: progress goes through another connection. The finish is the last
thing before the commit, on the task's own connection. Where it moves no row, the lease was lost: everything is undone.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from typing import Any

from django.db import transaction

from jobqueue import conf
from jobqueue.exceptions import LeaseLost, TransactionUndone
from jobqueue.lifecycle.finish import finish
from jobqueue.lifecycle.outcome import Outcome
from jobqueue.lifecycle.release import lock
from jobqueue.models import Job
from jobqueue.worker.forked import leave_if_forked
from jobqueue.worker.run import MESSAGES, Reason, Run

PAUSE_SECONDS = 0.01

logger = logging.getLogger("jobqueue")


def call_in_transaction(run: Run, call: Callable[[], Any], success: Callable[[Run], Outcome]) -> None:
    """Call the task and write its success in one transaction; raise, all being undone, where either fails."""
    database, began = Job.objects.database, time.monotonic()
    run.saves_with_outcome = database.one_writer
    pid = os.getpid()
    with database.atomic():
        try:
            run.value = call()
        except BaseException as error:
            leave_if_forked(pid, error)  # before the rollback, which would be sent through the parent's connection
            raise
        leave_if_forked(pid)
        if transaction.get_connection(database.alias).needs_rollback:
            raise TransactionUndone("The task left its transaction marked for rollback, so its work cannot be committed.")
        # From here on no interrupt is thrown into this thread: the job ends as it is, or not at all.
        run.close()
        outcome = success(run)
        _finish(outcome)
    outcome.committed = True
    run.committed = outcome
    if database.one_writer and time.monotonic() - began > conf.current().lease_seconds / 2:
        text = "Job %s (%s) kept its transaction open for %.0f s, and with it every other writer of this database away."
        logger.warning(text, run.job.id, run.job.task, time.monotonic() - began)


def _finish(outcome: Outcome) -> None:
    # Waiting for the lock: this transaction has not touched the job's row, so nobody who has the lock waits for us.
    if outcome.target is not None:
        lock([outcome.target])
    while True:
        [settled] = finish([outcome])
        if settled.written:
            return
        if not settled.later:
            raise LeaseLost(MESSAGES[Reason.LOST])
        _rest()  # a heartbeat or a person has the row just now


def _rest() -> None:
    import threading

    threading.Event().wait(PAUSE_SECONDS)
