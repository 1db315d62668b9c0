"""Tell idle workers of new work, sparingly.

A notification is a statement of its own after the commit: inside one, it would serialize the commits of the whole database. At
most one in `PAUSE_SECONDS` is sent per process and queue, the first never held back: a worker that was woken polls
closely for a while. Correctness never depends on any of it.
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
# Longer than the leader of due jobs may go on with what it saw: a second of rest, by a glance of two seconds ago (`lifecycle/glance.py`).
SOON_SECONDS = 3.5
PAUSE_SECONDS = 0.025

logger = logging.getLogger("jobqueue")
_last: dict[str, float] = {}
_lock = threading.Lock()


def work(queue: str, tenant: str = "") -> None:
    """Wake the workers of a queue once the caller's transaction has committed."""
    _after_commit(_work(queue, tenant))


def work_behind(queue: str, tenant: str = "") -> str | None:
    """Return what is to be sent, in place of `work`, in one message with the statement that makes a job, and behind its commit.

    None where nobody is to be told, or it is held back; it counts as sent then, for those who call next.
    """
    payload = _work(queue, tenant)
    return payload if conf.current().notify and _is_due(payload) else None


def not_sent(payload: str | None) -> None:
    """Forget that something was about to be sent, so that the next is not held back for it."""
    if payload is not None:
        with _lock:
            _last.pop(payload, None)


def _work(queue: str, tenant: str) -> str:
    return f"tenant:{json.dumps([tenant, queue])}" if tenant else f"queue:{queue}"


def read_work(payload: str) -> tuple[str, str] | None:
    """Return the tenant and the queue that a notification tells of; None where it is of another kind."""
    kind, _, rest = payload.partition(":")
    if kind == "tenant":
        tenant, queue = json.loads(rest)
        return tenant, queue
    return ("", rest) if kind == "queue" else None


def queues_changed() -> None:
    """Let every worker read the pauses and limits of queues anew once the caller's transaction has committed; never held back."""
    _after_commit(QUEUES, always=True)


def due(seconds: float) -> None:
    """Let whoever promotes due jobs look once the caller's transaction has committed, where it would look too late by itself."""
    if seconds < SOON_SECONDS:
        _after_commit(DUE)


def duties_changed() -> None:
    """Let every worker look at the duties once the caller's transaction has committed: one is free, or has new work; never held back."""
    _after_commit(DUTIES, always=True)


def owner(worker_id: str) -> None:
    """Let a worker process look at its jobs' flags once the caller's transaction has committed; never held back."""
    _after_commit(OWNER.format(worker_id), always=True)


def _after_commit(payload: str, *, always: bool = False) -> None:
    alias = router.db_for_write(Job)
    database = for_alias(alias, Job._meta.db_table)
    if database.can_notify and conf.current().notify:
        # Robust: the job is committed, so a failure to wake somebody must not look like a failure to enqueue.
        transaction.on_commit(lambda: _send(alias, payload, always=always), using=alias, robust=True)


def _send(alias: str, payload: str, *, always: bool) -> None:
    if always or _is_due(payload):
        for_alias(alias, Job._meta.db_table).notify(CHANNEL, payload)


def _is_due(payload: str) -> bool:
    """Return whether it is not held back; it counts as sent then."""
    now = time.monotonic()
    with _lock:  # two threads must not both believe to be the first
        if _is_held_back(payload, now):
            return False
        if len(_last) > 1000:
            _last.clear()
        _last[payload] = now
    return True


def _is_held_back(payload: str, now: float) -> bool:
    return now - _last.get(payload, -1.0) < PAUSE_SECONDS
