"""The orderly end of a worker process.

1. The dispatcher stops claiming. Claimed jobs that have not begun are handed back.
2. Running jobs get the grace period. Stuck runs are not waited for. A second signal ends the grace period.
3. Runs that have not ended are interrupted. A job with ``recovery="hold"`` becomes PAUSED. Other jobs return to QUEUED, which uses up no
   attempt.
4. The duties end at the same time as step 3. Webhook requests in flight get `DELIVERY_GRACE_SECONDS`. Another worker retries the
   deliveries that got no response.
5. The listener and the other services end and close their connections.
6. Jobs that did not react are handed back, too. Only the end of the process stops their threads, so this is one of the last steps:
   the process ends before another worker has repeated much of their work. An overdue run still runs long after its time limit, and the
   process ends because of it. Step 2 does not wait for such a run, and its job fails.
7. The signals that are still queued are sent, until `DELIVERY_GRACE_SECONDS` after the start of step 4.

The heartbeat renews leases until the last outcome is written. The log names each thread that does not stop, and the process then exits
with 1.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from jobqueue.conf import Settings
from jobqueue.core.service import Service
from jobqueue.worker.running.run import Reason, Run
from jobqueue.worker.running.stuck import given_up

if TYPE_CHECKING:
    from jobqueue.worker.process.parts import Parts

WRITE_SECONDS = 2.0
STEP_SECONDS = 0.05
HURRIED_SECONDS = 0.5
CLOSE_SECONDS = 4.0

logger = logging.getLogger("jobqueue")


def drain(parts: Parts, settings: Settings, is_urgent: Callable[[], bool]) -> bool:
    """End the work of the process; return whether every thread stopped and every outcome was written."""
    _stop_claiming(parts)
    grace = settings.shutdown_grace_period_seconds
    if any(run.overdue for run in parts.runs):  # the parent kills this process after `HARD_TIMEOUT_GRACE_SECONDS`
        grace = min(grace, max(settings.hard_timeout_grace_seconds - settings.interrupt_grace_seconds - CLOSE_SECONDS, 0.0))
    if len(parts.runs):
        logger.info("Stopping: %d jobs get up to %g s to finish.", len(parts.runs), grace)
    # A stuck run does not react to an interrupt, so it is not expected to finish in the grace period.
    _until(lambda: all(run.overdue or run.place for run in parts.runs) or is_urgent(), grace)
    began = time.monotonic()
    parts.duties.stop()  # they end while the runs are interrupted
    if len(parts.runs):
        _interrupt(parts)
        _until(lambda: not len(parts.runs), settings.interrupt_grace_seconds)
    ended = _end_duties(parts, began, is_urgent)
    closed = _stop_services(parts)
    stuck = _give_up(parts)
    written = _stop_writing(parts)
    _end_signals(parts, began + settings.delivery_grace_seconds)
    return written and closed and ended and not stuck


def _end_signals(parts: Parts, deadline: float) -> None:
    """Send the signals that are still queued. Signals lost to slow receivers do not change the exit status of the worker."""
    announcer, now = parts.announcer, time.monotonic()
    _until(lambda: not announcer.waiting, max(deadline - now, HURRIED_SECONDS))
    announcer.stop()
    if not announcer.join(HURRIED_SECONDS) or announcer.waiting:
        receiver, waiting = announcer.receiver or "a receiver", announcer.waiting
        args = ("%d signals were not sent before the end of the worker, because %s has not returned.", waiting, receiver)
        threading.Thread(target=logger.error, args=args, daemon=True).start()  # the call that hangs may be in a log handler


def _stop_claiming(parts: Parts) -> None:
    parts.finisher.unchain()
    # The listener stays: the worker receives requests to stop a job until its last job has ended.
    for service in (parts.dispatcher, parts.scaler):
        service.stop()
    parts.dispatcher.join(5.0)
    parts.dispatcher.give_back(parts.dispatcher.take_waiting(time.monotonic() + 1))


def _interrupt(parts: Parts) -> None:
    running = [run for run in parts.runs if run.ended is None]
    if running:
        logger.info("Interrupting %d jobs that have not finished.", len(running))
    for run in running:
        parts.interrupter.interrupt(run, Reason.SHUTDOWN)
        # At once, not after `THROW_SECONDS`: a blocked thread reacts when its call returns or never, and no time is left to wait.
        run.throw()


def _give_up(parts: Parts) -> list[Run]:
    for run in (stuck := [run for run in parts.runs if run.ended is None and run.abandon()]):
        reason = "has exceeded its time limit" if run.overdue else "is handed back"
        logger.error("Job %s (%s) does not stop; it %s, and the process ends.", run.job.id, run.job.task, reason)
        run.reason = run.reason or Reason.SHUTDOWN
        parts.finisher.put(run, given_up(run))
    _until(lambda: not len(parts.runs), WRITE_SECONDS)
    return stuck


def _end_duties(parts: Parts, began: float, is_urgent: Callable[[], bool]) -> bool:
    duties = parts.duties
    deadline = began + duties.end_seconds + _patience(parts)
    _until(lambda: not duties.alive or is_urgent(), deadline - time.monotonic())
    if is_urgent():
        duties.stop_waiting()
    # Each duty resigns when it ends, so that another worker can lead it at once.
    ended = duties.join(max(deadline - time.monotonic(), 0.0))
    unended = [*duties.unended, *([] if ended else [duties.name])]
    for name in unended:
        logger.error("The %s does not stop.", name)
    return not unended


def _stop_services(parts: Parts) -> bool:
    """Stop all services except those that renew leases, write outcomes or send signals; return whether all of them stopped."""
    logger.info("Closing the listener and the other services.")
    parts.lanes.close()
    parts.loop.stop()
    if parts.tenant_slots is not None:
        parts.tenant_slots.stop()  # no join: it calls code of the project, which may hang
    services = (parts.duties, parts.heartbeat, parts.announcer, parts.tenant_slots, *parts.finishers)
    # If the duties could not resign, the database does not respond, and part of the time is used up.
    seconds = WRITE_SECONDS if not parts.duties.alive else WRITE_SECONDS / 2
    clean = _stop([service for service in reversed(parts.services) if service not in services], seconds)
    return parts.lanes.join(time.monotonic() + 0.5) and parts.loop.join(0.5) and clean


def _stop_writing(parts: Parts) -> bool:
    clean = not parts.finisher.unwritten
    if not clean:
        logger.error("%d outcomes could not be written; these jobs are recovered when their leases run out.", parts.finisher.unwritten)
    clean = _stop([parts.heartbeat, *parts.finishers], _patience(parts)) and clean
    # Checked last: the thread of a duty may end a little later than its leadership.
    _until(lambda: not parts.duties.lingering, HURRIED_SECONDS)
    for name in (lingering := parts.duties.lingering):
        logger.error("The %s does not stop.", name)
    return clean and not lingering


def _patience(parts: Parts) -> float:
    """Return how many seconds services that use the database may take to stop: fewer if runs are left, since it may not respond."""
    return HURRIED_SECONDS if len(parts.runs) else WRITE_SECONDS


def _stop(services: Sequence[Service], seconds: float) -> bool:
    clean = True
    for service in services:
        service.stop()
    deadline = time.monotonic() + seconds
    for service in services:
        if not service.join(max(deadline - time.monotonic(), 0.05)):
            logger.error("The %s does not stop.", service.name)
            clean = False
    return clean


def _until(done: Callable[[], bool], seconds: float) -> None:
    """Wait until `done` returns true, for up to `seconds`."""
    deadline, pause = time.monotonic() + seconds, threading.Event()
    while not done() and time.monotonic() < deadline:
        pause.wait(STEP_SECONDS)
