"""Notify idle workers of new work, at a limited rate.

A notification is a separate statement after the commit: inside a transaction, it would serialize the commits of
the whole database. A process sends at most one per queue in `PAUSE_SECONDS`, and never delays the first. Further
notifications are dropped, because a worker that was woken polls at short intervals for a while. Correctness never
depends on notifications.
"""

import json
import logging
import threading
import time

from django.db import router, transaction

from jobqueue import conf
from jobqueue.db import for_alias
from jobqueue.models import Job

CHANNEL = "jobqueue"
OWNER = "owner:{}"
QUEUES = "queues"
DUE = "due"
DUTIES = "duties"
WORKERS = "workers"
# Longer than the leader that promotes due jobs can pause: a second, and one more if another short duty blocks the
# thread.
SOON_SECONDS = 3.5
PAUSE_SECONDS = 0.025

logger = logging.getLogger("jobqueue")
_last: dict[str, float] = {}
_lock = threading.Lock()


def work(queue: str, tenant: str = "") -> None:
    """Wake the workers of a queue when the caller's transaction has committed."""
    _after_commit(_work(queue, tenant))


def work_behind(queue: str, tenant: str = "") -> str | None:
    """Return the payload to send in one message with the statement that makes a job, after its commit, in place of `work`.

    Return None if notifications are off or this one is held back. A payload that is returned counts as sent for the
    next callers.
    """
    payload = _work(queue, tenant)
    return payload if conf.current().notify and _is_due(payload) else None


def not_sent(payload: str | None) -> None:
    """Forget a payload that was not sent, so that the next one is not held back."""
    if payload is not None:
        with _lock:
            _last.pop(payload, None)


def _work(queue: str, tenant: str) -> str:
    return f"tenant:{json.dumps([tenant, queue])}" if tenant else f"queue:{queue}"


def read_work(payload: str) -> tuple[str, str] | None:
    """Return the tenant and the queue of a notification, or None if it is of another kind."""
    kind, _, name = payload.partition(":")
    if kind == "tenant":
        tenant, queue = json.loads(name)
        return tenant, queue
    return ("", name) if kind == "queue" else None


def queues_changed() -> None:
    """Make every worker read the pauses and limits of queues again when the caller's transaction has committed; never held back."""
    _after_commit(QUEUES, always=True)


def due(seconds: float) -> None:
    """Wake the leader that promotes due jobs when the caller's transaction has committed, if it would otherwise check too late."""
    if seconds < SOON_SECONDS:
        _after_commit(DUE)


def duties_changed() -> None:
    """Make every worker check the duties when the caller's transaction has committed, as a duty is free or has work; never held back."""
    _after_commit(DUTIES, always=True)


def workers_changed() -> None:
    """Make every worker process read its own row when the caller's transaction has committed; never held back."""
    _after_commit(WORKERS, always=True)


def owner(worker_id: str) -> None:
    """Make a worker process check the flags of its jobs when the caller's transaction has committed; never held back."""
    _after_commit(OWNER.format(worker_id), always=True)


def _after_commit(payload: str, *, always: bool = False) -> None:
    alias = router.db_for_write(Job)
    database = for_alias(alias, Job._meta.db_table)
    if database.can_notify and conf.current().notify:
        # Robust, because the job is already committed: a failed notification must not seem to be a failed enqueue.
        transaction.on_commit(lambda: _send(alias, payload, always=always), using=alias, robust=True)


def _send(alias: str, payload: str, *, always: bool) -> None:
    if always or _is_due(payload):
        for_alias(alias, Job._meta.db_table).notify(CHANNEL, payload)


def _is_due(payload: str) -> bool:
    """Return whether a payload is due, that is, not held back. A payload that is due counts as sent."""
    now = time.monotonic()
    with _lock:  # two threads must not both be the first
        if _is_held_back(payload, now):
            return False
        if len(_last) > 1000:
            _last.clear()
        _last[payload] = now
    return True


def _is_held_back(payload: str, now: float) -> bool:
    return now - _last.get(payload, -1.0) < PAUSE_SECONDS
