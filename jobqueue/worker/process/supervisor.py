"""The supervisor of one worker process: it creates and wires the parts, watches them, and ends them one after another.

If a service hangs for `3 * HANG_SECONDS`, or its thread has ended, the process ends with a status other than 0. The parent process or the
service manager then starts a new one. A service that calls code of the project is only reported. Signal handlers only set flags.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import threading

from jobqueue import conf, signals
from jobqueue.conf import Settings
from jobqueue.db import hygiene
from jobqueue.declared import imports, registry
from jobqueue.duties import registry as registry_of_duties
from jobqueue.models import Worker
from jobqueue.worker import forked
from jobqueue.worker.base import DatabaseService
from jobqueue.worker.fleet.ipc import DONE, FAILED
from jobqueue.worker.fleet.parent import Parent
from jobqueue.worker.fleet.scaler import as_json
from jobqueue.worker.probes.state import ProbeState
from jobqueue.worker.process.build import Hooks, build
from jobqueue.worker.process.drain import drain
from jobqueue.worker.process.drained import RemainingWork
from jobqueue.worker.process.errors import ErrorLog
from jobqueue.worker.process.identity import Identity
from jobqueue.worker.process.memory import prepare_memory, rss_mb
from jobqueue.worker.process.recycling import Recycling
from jobqueue.worker.process.show import health, remove_row, show
from jobqueue.worker.process.state import probe_state
from jobqueue.worker.running.run import Run
from jobqueue.worker.running.run_records import keep_records
from jobqueue.worker.wakeups import Signal, Wakeups

WATCH_SECONDS = 1.0
ONCE_SECONDS = 0.3
HANG_SECONDS = 20.0
REMOVE_SECONDS = 2.0

logger = logging.getLogger("jobqueue")


class Supervisor:
    """One worker process, until it is asked to stop."""

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        once: bool = False,
        parent: Parent | None = None,
        max_jobs: int | None = None,
        max_rss_mb: int | None = None,
    ) -> None:
        """Build the parts; `settings` may include values of the command line, and `once` ends the worker when no job is left.

        `parent` is the connection to the process that started this worker and replaces it when it ends. The worker
        also ends after about `max_jobs` jobs, or when it uses more than `max_rss_mb` of memory.
        """
        self.settings = settings or conf.current()
        self.once = once
        self.identity = Identity()
        self.failed = False
        self._signals = self._parent_stops = 0
        self._ends = False
        self._why = ""
        self._pipe = os.pipe()
        self._on_error = ErrorLog()
        self._parent, self._wakeups = parent, parent.wakeups if parent else Wakeups()
        self._recycling = Recycling(self._wakeups.setter(Signal.END), max_jobs, max_rss_mb)
        self.parts = build(
            self.settings,
            self.identity,
            self._wakeups,
            Hooks(self._show, lambda: self._ends, self._replace_process, self._on_error),
            parent.board if parent else None,
        )
        self._subscribe()
        self._left = RemainingWork(self.settings, self.parts.runs)

    @property
    def errors(self) -> int:
        """The number of jobs that ended in ERROR here, including lost jobs that this process recovered."""
        return self.parts.finisher.errors + self.parts.maintenance.errors

    @property
    def stops(self) -> int:
        """The number of requests to end. A signal to all processes arrives twice, directly and through the parent, and counts once."""
        return max(self._signals, self._parent_stops)

    def probe_state(self) -> ProbeState:
        """Return the state of the process for its probes."""
        return probe_state(self.parts, self.settings, ending=bool(self.stops or self._ends))

    def stop(self) -> None:
        """Request the end of the worker; a second call skips the grace period. Safe in a signal handler."""
        self._signals += 1
        self._wake()

    def _stop_for_parent(self) -> None:
        self._parent_stops += 1
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # the pipe is closed after the end
            os.write(self._pipe[1], b".")  # not an Event: the code that the signal interrupts may hold its lock

    def run(self) -> bool:
        """Run until asked to stop; return whether all parts stopped cleanly and none failed."""
        if self._parent is not None:
            self._parent.start()
        registry.discover()
        registry_of_duties.discover()
        forked.watch(self.identity)
        self.identity.hold()
        parts = self.parts
        prepare_memory()
        keep_records()
        parts.scaler.begin()
        signals.announce_through(parts.announcer.put)
        for service in parts.services:
            service.start()
        if self._parent is not None:
            self._parent.serves(self.identity.worker_id, self.probe_state)
        try:
            while not (why := self._why_end(ONCE_SECONDS if self.once else WATCH_SECONDS)):
                pass
            self._why = why
            self._ends = True
            self.parts.maintenance.wake()  # writes DRAINING into the row before a second signal can end the worker
            if self._parent is not None and not self._parent_stops:
                self._parent.leaves(why)
        finally:
            clean = drain(parts, self.settings, lambda: self.stops > 1)
            signals.announce_through(None)
            self._remove_row()
        return clean and not self.failed

    def _subscribe(self) -> None:
        """Connect the signals that end this process, and those of its parent process."""
        parts, recycling, subscribe = self.parts, self._recycling, self._wakeups.subscribe
        subscribe(Signal.ENDED, lambda retrying: recycling.check_job_count(parts.finisher.done))
        subscribe(Signal.END, self._wake)
        subscribe(Signal.PARENT_STOPS, self._stop_for_parent)
        subscribe(Signal.PARENT_GONE, self.stop)
        if self._parent is not None:
            subscribe(Signal.RECOVERED, self._parent.recovered)

    def _replace_process(self, run: Run) -> bool:
        """Request the replacement of this process if it has a parent; return whether it will be replaced."""
        if self._parent is None:
            return False
        self._parent.overdue(run.job.id)
        return self._recycling.request_replacement(run)

    # Watch

    def _why_end(self, seconds: float) -> str:
        if not self.stops:
            select.select([self._pipe[0]], [], [], seconds)
        if self.stops:
            return "it was asked to stop"
        if not self._all_alive():
            return FAILED
        if self.once and self._left.is_drained():
            return DONE
        return self._recycling.reason(self.parts.finisher.done)

    def _all_alive(self) -> bool:
        for service in self.parts.services:
            hanging = service.busy_seconds
            if service.calls_project_code:
                service.report()
            elif not service.alive or hanging > 3 * HANG_SECONDS:
                self.failed = True
                logger.critical("The %s is %s; the worker ends.", service.name, "hanging" if service.alive else "gone")
            elif hanging > HANG_SECONDS and isinstance(service, DatabaseService):
                service.abort()
                logger.error("The %s has waited %.0f s for the database; its connection is cut.", service.name, hanging)
        return not self.failed

    # The row on the Workers page

    def _show(self, state: str = Worker.State.RUNNING) -> None:
        lanes, stuck = self.parts.lanes, self.parts.maintenance.stuck()
        state = Worker.State.DRAINING if self.stops or self._ends else state
        # Duties of the project are left out: only the project knows how long they may take.
        duties = [runner for runner in self.parts.duties.runners if runner.duty.longest_run_seconds is not None]
        services = health([*self.parts.services, *duties])
        seen = {"slots": lanes.slots, "running": len(self.parts.runs), "stuck": stuck, "scaling": as_json(self.parts.scaler.decision)}
        seen |= {"memory_mb": round(rss_mb()), "stuck_runs": self.parts.interrupter.stuck_runs}
        drained = show(self.identity, self.settings, state, services=services, failed_modules=imports.failures(), **seen)
        if self.parts.policy.drain(drained=drained):
            self._wakeups.set(Signal.WORK, None)

    def _remove_row(self) -> None:
        # In a thread, since the database may never respond, and in a daemon, so that the process ends in any case.
        options = {"failed": self.failed, "reason": self._why}
        remover = threading.Thread(target=remove_row, args=(self.identity,), kwargs=options, daemon=True)
        remover.start()
        remover.join(REMOVE_SECONDS)
        self.identity.release()
        hygiene.close_all()
        for end in self._pipe:
            os.close(end)
