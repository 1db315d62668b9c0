"""The end of a worker process, in order.

1. No new work: the dispatcher stops, claimed jobs that have not begun are handed back.
2. Running jobs get the grace period, but for those that are stuck; a second signal cuts it short.
3. What still runs is interrupted (``recovery="hold"`` becomes PAUSED, others go back to QUEUED without losing an attempt).
4. The duties end, beside the interrupts; deliveries of webhooks that are in flight get `DELIVERY_GRACE_SECONDS`, those that are not
   answered are tried again by another worker.
5. The listener and the other services end, and their connections are closed.
6. Jobs that did not react are given back all the same, last of all: nothing can stop their threads but the end of the process, which
   follows at once, before another worker has done much of them. One that went on for long after its time limit, so that the process
   ends because of it, is not waited for before, and fails.
7. The signals that wait are sent, as long as `DELIVERY_GRACE_SECONDS` since step 4 last.
The heartbeat goes on until the last outcome is written. Whatever does not stop is named in the log, and the process ends with 1.
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


def drain(parts: Parts, settings: Settings, hurry: Callable[[], bool]) -> bool:
    """End the process's work; return whether every thread stopped and every outcome was written."""
    _stop_claiming(parts)
    grace = settings.shutdown_grace_period_seconds
    if any(run.overdue for run in parts.runs):  # the parent kills this process when the hard grace is over
        grace = min(grace, max(settings.hard_timeout_grace_seconds - settings.interrupt_grace_seconds - CLOSE_SECONDS, 0.0))
    if len(parts.runs):
        logger.info("Stopping: %d jobs get up to %g s to finish.", len(parts.runs), grace)
    # One that reacts to nothing, and is shown as stuck, would not finish in that time either.
    _until(lambda: all(run.overdue or run.place for run in parts.runs) or hurry(), grace)
    began = time.monotonic()
    parts.duties.stop()  # what they wait for is waited for beside the interrupts
    if len(parts.runs):
        _interrupt(parts)
        _until(lambda: not len(parts.runs), settings.interrupt_grace_seconds)
    ended = _end_duties(parts, began, hurry)
    closed = _stop_services(parts)
    stuck = _give_up(parts)
    written = _stop_writing(parts)
    _end_signals(parts, began + settings.delivery_grace_seconds)
    return written and closed and ended and not stuck


def _end_signals(parts: Parts, deadline: float) -> None:
    """Send what signals are left. Receivers that take longer lose them, which is no fault of the worker, and is not its status."""
    announcer, now = parts.announcer, time.monotonic()
    _until(lambda: not announcer.waiting, max(deadline - now, HURRIED_SECONDS))
    announcer.stop()
    if not announcer.join(HURRIED_SECONDS) or announcer.waiting:
        receiver, waiting = announcer.receiver or "a receiver", announcer.waiting
        args = ("%d signals were not sent before the end of the worker, which does not wait for %s.", waiting, receiver)
        threading.Thread(target=logger.error, args=args, daemon=True).start()  # a log handler may be what hangs


def _stop_claiming(parts: Parts) -> None:
    parts.finisher.unchain()
    # Not the listener: requests to stop a job are heard until the last one has ended.
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
        # A thread in a sleep reacts at its end or never: no second of patience is left now.
        run.throw()


def _give_up(parts: Parts) -> list[Run]:
    for run in (stuck := [run for run in parts.runs if run.ended is None and run.abandon()]):
        what = "has exceeded its time limit" if run.overdue else "is given back"
        logger.error("Job %s (%s) does not stop; it %s, and the process ends.", run.job.id, run.job.task, what)
        run.reason = run.reason or Reason.SHUTDOWN
        parts.finisher.put(run, given_up(run))
    _until(lambda: not len(parts.runs), WRITE_SECONDS)
    return stuck


def _end_duties(parts: Parts, began: float, hurry: Callable[[], bool]) -> bool:
    duties = parts.duties
    deadline = began + duties.end_seconds + _patience(parts)
    _until(lambda: not duties.alive or hurry(), deadline - time.monotonic())
    if hurry():
        duties.hurry()
    # They hand themselves over to other workers when they end.
    ended = duties.join(max(deadline - time.monotonic(), 0.0))
    left = [*duties.unended, *([] if ended else [duties.name])]
    for name in left:
        logger.error("The %s does not stop.", name)
    return not left


def _stop_services(parts: Parts) -> bool:
    """Stop all but what renews leases and writes outcomes."""
    logger.info("Closing the listener and the other services.")
    parts.lanes.close()
    parts.loop.stop()
    if parts.tenant_slots is not None:
        parts.tenant_slots.stop()  # not waited for: it calls code of the project
    rest = (parts.duties, parts.heartbeat, parts.announcer, parts.tenant_slots, *parts.finishers)
    # Duties that could not be handed over have used up some of it: the database does not answer.
    seconds = WRITE_SECONDS if not parts.duties.alive else WRITE_SECONDS / 2
    clean = _stop([service for service in reversed(parts.services) if service not in rest], seconds)
    return parts.lanes.join(time.monotonic() + 0.5) and parts.loop.join(0.5) and clean


def _stop_writing(parts: Parts) -> bool:
    clean = not parts.finisher.unwritten
    if not clean:
        logger.error("%d outcomes could not be written; their leases will run out.", parts.finisher.unwritten)
    clean = _stop([parts.heartbeat, *parts.finishers], _patience(parts)) and clean
    # Judged last: a run that was under way may end a little later than its duty is handed over.
    _until(lambda: not parts.duties.lingering, HURRIED_SECONDS)
    for name in (lingering := parts.duties.lingering):
        logger.error("The %s does not stop.", name)
    return clean and not lingering


def _patience(parts: Parts) -> float:
    """Return how long those may take who talk to the database: where outcomes are not written, it may not answer at all."""
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
    """Wait for a condition that other threads bring about, at most so long."""
    deadline, pause = time.monotonic() + seconds, threading.Event()
    while not done() and time.monotonic() < deadline:
        pause.wait(STEP_SECONDS)
