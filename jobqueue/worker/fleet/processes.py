"""The parent process of several workers: it starts and replaces them, forwards signals to them, and runs no job itself.

It holds no connection, and no thread but those of its probes. Each worker is a new interpreter (see `jobqueue.worker.fleet.spawn`) with
a link to the parent (see `jobqueue.worker.fleet.ipc`) and a number for logs. If a process ends before any process has reported as a worker,
the command has started some other program. All processes then end, since the parent could start that program again and again.

A worker that dies is replaced: at once the first time, later after a growing pause. A live worker recovers its jobs at once. After
`MAX_STARTS` failed starts in a row, the parent and all workers end.

As process 1 of a container, the parent also collects the exit codes of orphans that it did not start.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import os
import random
import selectors
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

from jobqueue.worker.fleet import ipc
from jobqueue.worker.fleet.child import CLOSE_SECONDS, Times, Worker, collect_orphans
from jobqueue.worker.fleet.ipc import DONE, FAILED
from jobqueue.worker.fleet.spawn import Order

MAX_STARTS = 5
START_SECONDS = 120.0
REPORT_SECONDS = 60.0
STEADY_SECONDS = 60.0
MAX_PAUSE_SECONDS = 30.0
CHECK_SECONDS = 1.0
NOT_EXECUTABLE = {errno.ENOENT, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.ENOEXEC, errno.ELOOP, errno.EISDIR}

logger = logging.getLogger("jobqueue")


class Processes:
    """A number of workers that are kept running until the parent is asked to stop."""

    def __init__(self, number: int, order: Order, times: Times, *, once: bool = False) -> None:
        """Prepare the places; if `once`, a worker that has no job left to do is not replaced."""
        self.order, self.times, self.once = order, times, once
        self.workers = [Worker(index + 1) for index in range(number)]
        self.stops = 0
        self.failed = False
        self._starts_workers = False  # a process has reported as a worker, so the command is right
        self.refusal = ""  # why no worker can be started
        self.errors = False  # a worker with no job left ended with a status other than 0
        self._passed_on = 0
        self._checked_at = time.monotonic()
        self._dead: dict[str, int | None] = {}
        self._failed_starts_in_a_row = 0
        self._selector = selectors.DefaultSelector()
        self._woken, self._waker = os.pipe()

    def stop(self) -> None:
        """Request the end; a second call skips the grace period. Safe in a signal handler."""
        self.stops += 1

    def quit(self) -> None:
        """Send SIGQUIT to all workers, which end at once, each with a dump of its threads. Safe in a signal handler."""
        for worker in self.workers:
            if worker.process is not None:
                worker.process.send_signal(signal.SIGQUIT)

    def run(self) -> tuple[bool, dict[str, int | None]]:
        """Run until asked to stop; return whether all workers ended cleanly, and the dead workers whose jobs no worker recovered."""
        with self._waking_up():
            while not self._over():
                self._pass_on()
                self._start_those_due()
                self._report_dead()
                self._rest()
                self._reap()
                self._kill_stuck()
        return not self.failed and not self.errors, self._dead

    # Start

    def _start_those_due(self) -> None:
        now = time.monotonic()
        for worker in self.workers:
            if worker.process is None and not worker.finished and not self.stops and not self.failed and worker.start_at <= now:
                self._start(worker)

    def _start(self, worker: Worker) -> None:
        try:
            link = worker.start(self.order)
        except OSError as error:
            if error.errno in NOT_EXECUTABLE and not self._starts_workers:
                self._refuse(f"cannot be executed ({error.strerror})")
            else:  # too many processes or open files, or a deployment is replacing the interpreter
                self._failed_starts(worker, f"could not be started ({error})")
            return
        self._selector.register(link, selectors.EVENT_READ, worker)

    # Receive

    def _rest(self) -> None:
        for key, _ in self._selector.select(self._pause()):
            if key.data is None:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._woken, 4096)
            else:
                self._receive(key.data)

    def _pause(self) -> float:
        waiting = [worker.start_at for worker in self.workers if worker.process is None and not worker.finished and not self.stops]
        return max(min([CHECK_SECONDS, *(at - time.monotonic() for at in waiting)]), 0.0)

    def _receive(self, worker: Worker) -> None:
        if worker.link is None:
            return
        for kind, value in worker.link.receive():
            worker.record_message(kind, value)
            if kind == ipc.REPORTS:
                worker.reported = self._starts_workers = True
            if kind == ipc.SERVES:
                worker.identity, worker.served_at = str(value), worker.last_message_at
                self._failed_starts_in_a_row = 0
                logger.info("%s is worker %s (pid %d).", worker.name, value, worker.process.pid if worker.process else 0)
            elif kind == ipc.RECOVERED:
                for identity in value:
                    self._dead.pop(identity, None)
            elif kind == ipc.OVERDUE:
                worker.culprit = worker.culprit or int(value)
                worker.kill_at = min(worker.kill_at or math.inf, worker.last_message_at + self.times.hard_seconds)
            elif kind == ipc.LEAVES:
                worker.leaves = str(value)
                worker.kill_at = worker.kill_at or worker.last_message_at + self.times.drain_seconds
        if worker.link.closed:
            self._hang_up(worker)

    def _hang_up(self, worker: Worker) -> None:
        if worker.link is not None:
            self._selector.unregister(worker.link)
            worker.link.close()
            worker.link = None

    # Send

    def _pass_on(self) -> None:
        stops = self.stops  # once: a signal that arrives meanwhile is passed on in the next round
        if self._passed_on == stops:
            return
        drain_seconds = self.times.drain_seconds if stops == 1 else self.times.hurried_seconds
        for worker in self.workers:
            if worker.process is not None:
                worker.kill_at = time.monotonic() + (drain_seconds if worker.served_at is not None else CLOSE_SECONDS)
                for _ in range(stops - self._passed_on):
                    # A worker that does not serve yet may not read the link. It counts the message and the signal as one request.
                    if worker.link is None or not worker.link.send(ipc.STOP) or worker.served_at is None:
                        worker.process.send_signal(signal.SIGTERM)
        self._passed_on = stops

    def _report_dead(self) -> None:
        """Ask a live worker to recover the jobs of dead workers; ask another one if that one dies before it has reported."""
        known = set().union(*(worker.known_dead for worker in self.workers if worker.process is not None))
        worker = next((candidate for candidate in self.workers if candidate.serves), None)
        unreported = [identity for identity in self._dead if identity not in known]
        if (
            unreported
            and worker is not None
            and worker.link is not None
            and worker.link.send(ipc.DEAD, {worker_id: self._dead[worker_id] for worker_id in unreported})
        ):
            worker.known_dead.update(unreported)

    # The end of a worker

    def _reap(self) -> None:
        for worker in self.workers:
            if worker.process is not None and worker.process.poll() is not None:
                self._receive(worker)  # messages that it sent before its end
                self._ended(worker, worker.process.returncode)
        if os.getpid() == 1:
            collect_orphans({worker.process.pid for worker in self.workers if worker.process is not None})

    def _ended(self, worker: Worker, status: int) -> None:
        self._hang_up(worker)
        served, worker.process = worker.served_at is not None, None
        died = status != 0
        if worker.identity and died:
            self._dead[worker.identity] = worker.culprit
        how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        if self.stops or self.failed:
            self._note_end(worker, status, how, served)
        elif worker.leaves == DONE and status >= 0:
            worker.finished = True
            self.errors |= died
        elif not self._starts_workers:
            self._refuse(f"{how} and did not report as a worker")
        elif not served:
            self._failed_starts(worker, f"{how} before it served")
        else:
            fell = died and worker.leaves in ("", FAILED)  # else the worker ended for the reason that it reported
            worker.crashes = worker.crashes + 1 if fell and time.monotonic() - worker.started_at < STEADY_SECONDS else int(fell)
            self._schedule_start(worker, worker.crashes - 1, how)

    def _note_end(self, worker: Worker, status: int, how: str, served: bool) -> None:
        # A signal that is sent to all processes may kill a worker that has no handlers yet. It had no work to end, so this is no failure.
        stopped = not served and -status in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        if status != 0 and not stopped:
            self.failed = True
            logger.error("%s %s.", worker.name, how)

    def _refuse(self, how: str) -> None:
        """End all processes, since the started program is not a worker."""
        self.refusal = self.refusal or (
            f"Worker processes cannot be started: {sys.executable} {how}. "
            "Start runworkers with a Python interpreter, or leave --processes out."
        )
        self.failed = True
        self.stops = max(self.stops, 1)

    def _failed_starts(self, worker: Worker, how: str) -> None:
        self._failed_starts_in_a_row += 1
        if self._failed_starts_in_a_row >= MAX_STARTS:
            logger.critical("%s %s. A worker process failed to start %d times in a row; shutting down.", worker.name, how, MAX_STARTS)
            self.failed = True
            self.stops = max(self.stops, 1)
        else:
            self._schedule_start(worker, self._failed_starts_in_a_row, how)

    def _schedule_start(self, worker: Worker, crashes: int, how: str) -> None:
        """Schedule the next start of a worker: at once if `crashes` is below 1, else after a pause that grows with it, with jitter."""
        pause = 0.0 if crashes < 1 else min(0.5 * 2.0 ** min(crashes, 10), MAX_PAUSE_SECONDS) * random.uniform(0.5, 1.0)  # noqa: S311
        worker.start_at = time.monotonic() + pause
        level = logging.INFO if worker.leaves else logging.ERROR
        why = f" ({worker.leaves})" if worker.leaves else ""
        logger.log(level, "%s %s%s; a new one starts %s.", worker.name, how, why, f"in {pause:.1f} s" if pause else "now")

    def _kill_stuck(self) -> None:
        """Kill each worker that does not start or end in time, or that has been silent until its leases were lost."""
        now = time.monotonic()
        paused, self._checked_at = now - self._checked_at > 5 * CHECK_SECONDS, now
        for worker in self.workers:
            if paused:  # this process was stopped, perhaps with the whole machine, and could not receive signs of life
                worker.last_message_at = now
            if worker.process is None or worker.killed:
                continue
            if worker.kill_at is not None and now >= worker.kill_at:
                why = "does not end"
            elif not worker.reported and now - worker.started_at > REPORT_SECONDS:
                why = f"has not reported within {REPORT_SECONDS:g} s of its start"
            elif worker.served_at is None and now - worker.started_at > START_SECONDS:
                why = f"has not served within {START_SECONDS:g} s of its start"
            elif (culprit := worker.overdue(now, self.times)) is not None:
                worker.culprit = worker.culprit or culprit
                why = f"does not respond, and job {culprit} exceeded its time limit more than {self.times.overdue_seconds:g} s ago"
            elif worker.served_at is not None and now - worker.last_message_at > self.times.silent_seconds:
                why = f"has not responded for {self.times.silent_seconds:g} s"
            else:
                continue
            worker.killed = True
            worker.process.kill()
            logger.error("%s (pid %d) %s; it is killed.", worker.name, worker.process.pid, why)

    def _over(self) -> bool:
        alive = any(worker.process is not None for worker in self.workers)
        return not alive and (self.stops > 0 or self.failed or all(worker.finished for worker in self.workers))

    @contextlib.contextmanager
    def _waking_up(self) -> Iterator[None]:
        """Make signals, including SIGCHLD, end the wait of the selector, which resumes after a signal handler has run."""
        for end in (self._woken, self._waker):
            os.set_blocking(end, False)
        self._selector.register(self._woken, selectors.EVENT_READ, None)
        before = signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        handler: Any = signal.signal(signal.SIGCHLD, lambda *_: None)
        try:
            yield
        finally:
            signal.signal(signal.SIGCHLD, handler)
            signal.set_wakeup_fd(before)
            self._selector.close()
            for end in (self._woken, self._waker):
                os.close(end)
