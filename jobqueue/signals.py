"""The signals of jobqueue; a payload is built only if a receiver is connected.

- ``job_settled``: the end of a run was written. Arguments: job_id, task, queue, status, attempt, seconds, worker_id,
  message, and exception (the exception of the run, or None). If there is an exception, the signal is sent inside of
  an ``except`` block, as ``task_finished`` is.
- ``job_lost``: a job was recovered from a lost worker. Arguments: job_id, task, status, worker_id.
- ``job_stale``: an ended job was marked as stale; ``job_deleted``: retention has deleted a job. Both are sent after
  the commit. Arguments: job_id, task, queue, tenant, target, status, finished_at.
- ``job_event``: an event was stored (see ``core/event_names.py``). It is sent after the commit, in the process that
  wrote the event. Arguments: name, job_id, at, attempt, tenant, target, data (a dict or None).
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
    """Declare a receiver that only logs, by its dispatch_uid or identity, with its logger and its level."""
    _logs[id(signal)] = (key, logging.getLogger(logger), level)


def has_receivers(signal: Signal) -> bool:
    """Return whether a receiver is connected that does more than log."""
    receivers = signal.receivers
    only_log = _logs[id(signal)][0] if id(signal) in _logs else None
    return len(receivers) > 1 or (len(receivers) == 1 and receivers[0][0][0] != only_log)


def has_effect(signal: Signal) -> bool:
    """Return whether sending the signal can have an effect: a receiver does more than log, or the log level is enabled."""
    if not signal.receivers:
        return False
    _, logger, level = _logs[id(signal)]
    return has_receivers(signal) or logger.isEnabledFor(level)


_announcer: Put | None = None


def announce_through(put: Put | None) -> None:
    """Set the function through which service threads call receivers; None resets it."""
    global _announcer  # noqa: PLW0603 - one worker process has one announcer
    _announcer = put


def deliver(send: Send, items: Sequence[Any], read: Read | None = None, patience: float = 0.0) -> None:
    """Call ``send(item, known)`` for each item, here or in the announcer's thread; `known` is the result of ``read(items)``.

    A receiver can hang, so the services of a worker do not call receivers: the announcer does. If the announcer's
    queue is full, the rest is dropped after `patience` seconds. All other threads call the receivers themselves.
    `send` does not raise.
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
