"""Our signals, and the question whether anybody listens: what nobody hears is not built.

``job_settled`` tells that the end of a run was written: job_id, task, queue, status, attempt, seconds, worker_id, message, and exception:
what the run raised, or None. It is sent inside of an ``except`` block if there is one, as ``task_finished`` is.
``job_lost`` tells that a job was recovered from a dead worker: job_id, task, status, worker_id.
``job_stale`` tells that an ended job was marked as stale, ``job_deleted`` that retention has deleted one, both once that is
committed: job_id, task, queue, tenant, target, status, finished_at.
``job_event`` tells each event of the log (see ``event_names.py``) once it is committed, in the process that wrote it: name, job_id, at,
attempt, tenant, target, data (a dict or None).
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from django.dispatch import Signal

from jobqueue import compat
from jobqueue.core.service import in_service_thread

Send = Callable[[Any, Any], None]
Read = Callable[[Sequence[Any]], Any]
Put = Callable[[Send, Iterable[Any], "Read | None", float], None]

job_settled = Signal()
job_lost = Signal()
job_stale = Signal()
job_deleted = Signal()
job_event = Signal()

_logs: dict[int, tuple[object, logging.Logger, int]] = {}


def only_logs(signal: Signal, key: object, logger: str, level: int) -> None:
    """Declare a receiver, by its dispatch_uid or identity, that does nothing but log, at this level or above."""
    _logs[id(signal)] = (key, logging.getLogger(logger), level)


def listened_to(signal: Signal) -> bool:
    """Return whether a receiver does more than log."""
    receivers = signal.receivers
    only_log = _logs[id(signal)][0] if id(signal) in _logs else None
    return len(receivers) > 1 or (len(receivers) == 1 and receivers[0][0][0] != only_log)


def heard(signal: Signal) -> bool:
    """Return whether sending the signal could have an effect: a receiver that does more than log, or a log that is on."""
    if not signal.receivers:
        return False
    _, logger, level = _logs[id(signal)]
    return listened_to(signal) or logger.isEnabledFor(level)


_announcer: Put | None = None


def announce_through(put: Put | None) -> None:
    """Have what service threads deliver sent by this function; None ends that."""
    global _announcer  # noqa: PLW0603 - one worker process has one announcer
    _announcer = put


def deliver(send: Send, items: Sequence[Any], read: Read | None = None, patience: float = 0.0) -> None:
    """Call ``send(item, known)`` for each item, `known` being what ``read(items)`` returned: here, or in the announcer's thread.

    A receiver may hang, so no service of a worker calls one: the announcer does. If its queue is full, the rest is dropped after
    `patience` seconds. Every other thread waits for its receivers itself. `send` does not raise.
    """
    if _announcer is not None and in_service_thread():
        _announcer(send, items, read, patience)
        return
    known = read(items) if read is not None else None
    for item in items:
        send(item, known)


tasks = compat.module("signals")
task_enqueued: Signal = tasks.task_enqueued
task_started: Signal = tasks.task_started
task_finished: Signal = tasks.task_finished
only_logs(task_enqueued, id(tasks.log_task_enqueued), compat.LOGGER_NAME, logging.DEBUG)
only_logs(task_started, id(tasks.log_task_started), compat.LOGGER_NAME, logging.INFO)
only_logs(task_finished, id(tasks.log_task_finished), compat.LOGGER_NAME, logging.INFO)
