"""Do bulk actions in small batches.

A batch is one transaction: it locks the row of the action, then the targets of its jobs in their order, changes the
jobs by the verbs of ``lifecycle/control.py`` in the order of their numbers, and advances the cursor. If it fails, it
changed nothing, and its jobs are tried one by one. A job that fails alone is counted as refused, and the rest continues.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.db.models import F, QuerySet

from jobqueue import db
from jobqueue.access import audit
from jobqueue.bulk.actions import VERBS, rows, seen_by
from jobqueue.core.answers import Answer, Verdict
from jobqueue.core.json_columns import as_dict
from jobqueue.db import Now
from jobqueue.exceptions import InvalidSearch, JobDoesNotExist, LeadershipLost
from jobqueue.insight.search import UNREAD, condition, matches, parsed
from jobqueue.lifecycle.aside import reason_of
from jobqueue.lifecycle.release import lock
from jobqueue.models import BulkAction, Job

BATCH: Final = 30  # with up to two savepoints for each job, at most the 64 that PostgreSQL keeps in memory for a transaction
SPAN: Final = 20_000  # the numbers that one statement covers
RUN_SECONDS: Final = 0.3
# While a batch holds locks, it waits for less time than PostgreSQL's deadlock_timeout (1 s), so that no worker's
# transaction is the victim of a deadlock. A single job can wait for longer.
BATCH_LOCK_SECONDS, LOCK_SECONDS = 0.5, 1.0
MAX_REASONS: Final = 20
MAX_ACTIONS: Final = 20
OTHER: Final = "other reasons"
State = BulkAction.State

logger = logging.getLogger("jobqueue")


class Failed(Exception):
    """The reason why a bulk action cannot continue."""


class BulkWork:
    """The open bulk actions, worked off in turn."""

    def __init__(self) -> None:
        """Start with whole batches."""
        self._singly = Counter[int]()  # for each action whose last batch failed, how many jobs to try one by one

    def run(self) -> tuple[int, bool]:
        """Work for up to `RUN_SECONDS`; return how many jobs were changed, and whether there is more to do."""
        until, changed = time.monotonic() + RUN_SECONDS, 0
        while True:
            found = list(rows().filter(state=State.OPEN).order_by("pk")[:MAX_ACTIONS])
            for action in found:
                changed += self._advance(action)
                if time.monotonic() >= until:
                    return changed, True
            if not found:
                return changed, False

    def _advance(self, action: BulkAction) -> int:
        """Do one batch of an action, or end it; return how many jobs were changed."""
        if action.stop:
            return _end(action, State.STOPPED)
        try:
            user = _user_of(action)
            upto = _upto(action)
            if upto is None:
                return _end(action, State.DONE)
            wanted = _wanted(action, user, upto)
        except (Failed, InvalidSearch) as error:
            return _end(action, State.FAILED, str(error))
        singly = self._singly[action.pk] > 0
        size, seconds = (1, LOCK_SECONDS) if singly else (BATCH, BATCH_LOCK_SECONDS)
        try:
            changed = _batch(action, user, wanted[:size], upto, seconds)
        except Exception as error:
            if isinstance(error, LeadershipLost) or db.is_outage(error):
                raise
            if singly:
                self._singly[action.pk] -= 1
                _refuse_next(action, wanted, upto, error)
            else:
                logger.info("Bulk action %s tries the next jobs one by one, because a batch failed: %s", action.pk, reason_of(error))
                self._singly[action.pk] = BATCH
            return 0
        self._singly[action.pk] -= singly
        return changed


def _user_of(action: BulkAction) -> Any:
    """Return the user who requested an action if the user may still do it, or None for an operator."""
    if not action.user:
        return None
    try:
        user = get_user_model()._default_manager.filter(pk=action.user).first()
    except (ValueError, TypeError, ValidationError):
        user = None
    if user is None or not user.is_active:
        raise Failed("The user who requested it does not exist any more, or is not active.")
    for name in ("view_job", f"{action.verb}_job"):
        if not user.has_perm(f"jobqueue.{name}"):
            raise Failed(f"The user who requested it has no permission jobqueue.{name} any more.")
    return user


def _upto(action: BulkAction) -> int | None:
    """Return the number up to which the next batch considers jobs, or None at the end."""
    ahead = Job.objects.current.filter(pk__gt=action.cursor, pk__lte=action.upto_id)
    first = ahead.order_by("pk").values_list("pk", flat=True).first()
    return None if first is None else min(first + SPAN, action.upto_id)


def _wanted(action: BulkAction, user: Any, upto: int) -> QuerySet[Job]:
    """Return the jobs up to a number that the action changes, by their stored values."""
    if action.verb not in VERBS:
        raise Failed(f"There is no verb {action.verb[:80]!r}.")
    meant = condition(parsed(action.query), action.created_at)
    jobs = seen_by(user).filter(VERBS[action.verb].possible, meant, pk__gt=action.cursor, pk__lte=upto)
    return jobs.order_by("pk").defer(*UNREAD)


def _batch(action: BulkAction, user: Any, wanted: QuerySet[Job], upto: int, lock_seconds: float) -> int:
    """Change a batch of jobs and advance the cursor, in one transaction; return how many jobs were changed."""
    verb, search, most = VERBS[action.verb], parsed(action.query), wanted.query.high_mark
    found = list(wanted)
    jobs = [job for job in found if matches(search, job)]
    cursor, until = found[-1].pk if len(found) == most else upto, time.monotonic() + RUN_SECONDS
    answers: list[tuple[Job, Answer]] = []
    with Job.objects.database.atomic():
        Job.objects.database.limit_lock_wait(lock_seconds)
        # The row of the action comes first, so that a second leader waits here, and then finds another cursor.
        mine = rows().select_for_update().filter(pk=action.pk, cursor=action.cursor, state=State.OPEN)
        if mine.values_list("pk").first() is None:
            raise LeadershipLost(f"Another worker has continued bulk action {action.pk}.")
        lock({job.tenant_target for job in jobs if job.target})
        for job in jobs:
            with contextlib.suppress(JobDoesNotExist):
                answers.append((job, verb.act(job.pk)))
            if time.monotonic() >= until:  # the locks are not held for longer, and the next batch continues here
                cursor = job.pk
                break
        with audit.from_source("bulk"):
            for job, answer in answers:
                _record(action, action.actor if user is None else user, job, answer)
        done = sum(bool(answer) for _, answer in answers)
        _save(action, cursor, done, [answer.reason for _, answer in answers if not answer])
    return done


def _refuse_next(action: BulkAction, wanted: QuerySet[Job], upto: int, error: Exception) -> None:
    """Pass over the next job, which cannot be changed, and count it as refused."""
    reason = "another transaction has locked it" if db.was_given_up(error) else reason_of(error)
    with Job.objects.database.atomic():
        job_id = wanted.values_list("pk", flat=True).first()
        _save(action, upto if job_id is None else job_id, 0, [] if job_id is None else [reason])


def _record(action: BulkAction, actor: Any, job: Job, answer: Answer) -> None:
    text = f"By bulk action {action.pk}; the job was {job.status}.{f' {answer.reason}.' if answer.reason else ''}"
    deleted = action.verb == "delete" and answer.verdict is Verdict.DONE
    audit.record(actor, action.verb, job, answer.verdict.value, text=text, deleted=deleted)


def _save(action: BulkAction, cursor: int, done: int, reasons: Iterable[str]) -> None:
    """Write the progress of an action, in the transaction that changed the jobs."""
    counts = Counter({str(reason): number for reason, number in as_dict(action.refusals).items() if isinstance(number, int)})
    refused = 0
    for reason in reasons:
        refused += 1
        counts[reason if reason in counts or len(counts) < MAX_REASONS else OTHER] += 1
    mine = rows().filter(pk=action.pk)
    mine.update(cursor=cursor, refusals=dict(counts), done=F("done") + done, refused=F("refused") + refused)


def _end(action: BulkAction, state: State, message: str = "") -> int:
    rows().filter(pk=action.pk, state=State.OPEN).update(state=state, message=message, finished_at=Now())
    if state == State.FAILED:
        logger.error("Bulk action %s has failed: %s", action.pk, message)
    return 0
