"""The supervisor of one worker process: it creates and wires the parts, watches them, and ends them in order.

If a service hangs for `3 * HANG_SECONDS`, or its thread has ended, the process ends with a status other than 0. The parent process or the
service manager then starts a new one. A service that calls code of the project is only reported. Signal handlers only set flags.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import threading
from collections.abc import Callable, Sequence

from jobqueue import conf, signals
from jobqueue.conf import Settings
from jobqueue.db import LeaseHolder, hygiene
from jobqueue.declared import imports, registry
from jobqueue.duties import registry as registry_of_duties
from jobqueue.duties.builtin import builtin
from jobqueue.lifecycle.expire import Expired
from jobqueue.models import Job, Worker
from jobqueue.schedules.sync import bring_schedules
from jobqueue.worker import forked
from jobqueue.worker.base import DatabaseService
from jobqueue.worker.claim_policy import ClaimPolicy
from jobqueue.worker.claiming.claimer import Claimer
from jobqueue.worker.claiming.dispatcher import Dispatcher
from jobqueue.worker.claiming.listener import Heard, Listener
from jobqueue.worker.claiming.tenant_slots import TenantSlots
from jobqueue.worker.duties.contender import Duties
from jobqueue.worker.fleet.ipc import DONE, FAILED
from jobqueue.worker.fleet.parent import Parent
from jobqueue.worker.fleet.scaler import Scaler, told
from jobqueue.worker.process.drain import drain
from jobqueue.worker.process.drained import RemainingWork
from jobqueue.worker.process.errors import ErrorLog
from jobqueue.worker.process.identity import Identity
from jobqueue.worker.process.maintenance import Maintenance
from jobqueue.worker.process.memory import prepare_memory
from jobqueue.worker.process.parts import Parts
from jobqueue.worker.process.recycling import Recycling
from jobqueue.worker.process.show import health, say_goodbye, show
from jobqueue.worker.reporting.announcer import Announcer
from jobqueue.worker.reporting.finisher import Finisher
from jobqueue.worker.reporting.heartbeat import Heartbeat
from jobqueue.worker.reporting.reporter import Reporter
from jobqueue.worker.running.interrupter import Interrupter
from jobqueue.worker.running.lanes import Lanes
from jobqueue.worker.running.loop import Loop
from jobqueue.worker.running.pool import Pool
from jobqueue.worker.running.run import Run, Runs

WATCH_SECONDS = 1.0
ONCE_SECONDS = 0.3
HANG_SECONDS = 20.0
GOODBYE_SECONDS = 2.0

logger = logging.getLogger("jobqueue")


class Supervisor:
    """One worker process, until it is asked to stop."""

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        once: bool = False,
        parent: Parent | None = None,
        recycling: Recycling | None = None,
    ) -> None:
        """Build the parts; `settings` may have values of the command line, and `once` ends the worker when no job is left.

        `parent` is the connection to the process that started this worker and replaces it when it ends.
        """
        self.settings = settings or conf.current()
        self.once = once
        self.identity = Identity()
        self.failed = False
        self._signals = self._told = 0
        self._ends = False
        self._pipe = os.pipe()
        self._on_error = ErrorLog()
        self._parent, self._recycling = parent, recycling or Recycling()
        self._recycling.hurry = self._look_up
        self.parts = self._build()
        self._left = RemainingWork(self.settings, self.parts.runs)
        if parent is not None:
            self._listen_to(parent)

    @property
    def errors(self) -> int:
        """The number of jobs that ended in ERROR here, including lost jobs that this process recovered."""
        return self.parts.finisher.errors + self.parts.maintenance.errors

    @property
    def stops(self) -> int:
        """The number of requests to end. A signal to all processes arrives twice, directly and through the parent, and counts once."""
        return max(self._signals, self._told)

    def stop(self) -> None:
        """Request the end of the worker; a second call skips the grace period. Safe in a signal handler."""
        self._signals += 1
        self._look_up()

    def _hear_stop(self) -> None:
        self._told += 1
        self._look_up()

    def _look_up(self) -> None:
        with contextlib.suppress(OSError):  # the pipe is closed after the end
            os.write(self._pipe[1], b".")  # not an Event: the code that the signal interrupts may hold its lock

    def run(self) -> bool:
        """Run until asked to stop; return whether all parts stopped in order and none failed."""
        if self._parent is not None:
            self._parent.start()
        registry.discover()
        registry_of_duties.discover()
        forked.watch(self.identity)
        self.identity.hold()
        parts = self.parts
        prepare_memory()
        parts.scaler.begin()
        signals.announce_through(parts.announcer.put)
        for service in parts.services:
            service.start()
        if self._parent is not None:
            self._parent.serves(self.identity.worker_id)
        try:
            while not (why := self._why_end(ONCE_SECONDS if self.once else WATCH_SECONDS)):
                pass
            self._ends = True
            self.parts.maintenance.wake()  # writes DRAINING into the row before a second signal can end the worker
            if self._parent is not None and not self._told:
                self._parent.leaves(why)
        finally:
            clean = drain(parts, self.settings, lambda: self.stops > 1)
            signals.announce_through(None)
            self._say_goodbye()
        return clean and not self.failed

    def _build(self) -> Parts:
        settings, worker_id, queues = self.settings, self.identity.worker_id, self.settings.queues
        finisher = (finishers := self._finishers(runs := Runs()))[0]
        lanes, loop = Lanes(lambda: Pool(finisher.put)), Loop(finisher.put)
        gate, slots = self._gate(lanes)
        limits = (settings.max_workers, settings.timeout_grace_seconds, self._replace_process, self._parent.board if self._parent else None)
        interrupter = Interrupter(finisher.put, self._go_on_without, self._on_error, lambda: maintenance.wake(), *limits)  # noqa: PLW0108
        heartbeat = Heartbeat(runs, interrupter, settings.lease_seconds, settings.heartbeat_seconds, self._on_error)
        dispatcher = Dispatcher(
            worker_id,
            Claimer(LeaseHolder(worker_id, settings.lease_seconds), gate, lanes),
            runs=runs,
            lanes=lanes,
            loop=loop,
            finisher=finisher,
            reporter=(reporter := Reporter(runs, self._on_error)),
            poll_seconds=settings.poll_seconds,
            is_notified=lambda: listener is not None and listener.healthy,
            lost=self._lost,
            max_crashes=settings.max_crashes,
            crowded=lambda: scaler.hurry(),  # noqa: PLW0108 - made below
            watch=interrupter.watch,
            on_error=self._on_error,
        )
        finisher.chain(gate, dispatcher.begin_next, dispatcher.lose_track, dispatcher.notified)
        maintenance = Maintenance(
            self.identity,
            show=self._show,
            stuck=lambda: interrupter.stuck,
            found=dispatcher.notified,
            changed=lambda: (scaler.decision, self._ends),
            at_start=lambda: bring_schedules()[1],
            on_error=self._on_error,
        )
        duties = self._duties(heartbeat.renew_all, maintenance.announce, dispatcher.notified)
        heard = Heard(dispatcher.notified, heartbeat.read_flags, gate.changed, duties.notify_due, duties.notify)
        listener = Listener(worker_id, queues, heard, self._on_error) if settings.notify and Job.objects.database.can_notify else None
        scaler = Scaler(
            lanes,
            gate,
            least=settings.min_workers,
            most=settings.max_workers,
            scale_seconds=settings.scale_seconds,
            resized=dispatcher.wake,
            decided=maintenance.wake,
            on_error=self._on_error,
        )
        core = (runs, lanes, loop, finishers, interrupter, heartbeat, reporter, dispatcher, maintenance, duties, scaler, listener)
        return Parts(*core, Announcer(self._on_error), slots)

    def _gate(self, lanes: Lanes) -> tuple[ClaimPolicy, TenantSlots | None]:
        slots = TenantSlots(self._on_error) if conf.calls_for_tenant_slots() else None
        read = slots.latest if slots else conf.tenant_slots
        return ClaimPolicy(tuple(self.settings.queues), self.settings.max_running, lanes.set_slots, read), slots

    def _finishers(self, runs: Runs) -> list[Finisher]:
        most = 1 if Job.objects.database.one_writer else 2  # a second one would wait for the first on a database with one writer
        settings, names = self.settings, ("finisher", "finisher-2")[:most]
        made = [Finisher(runs, self.identity.worker_id, settings.lease_seconds, self._settled, self._on_error, name) for name in names]
        for second in made[1:]:
            made[0].share(second)
        return made

    def _duties(self, renew: Callable[[], None], announce: Callable[[Sequence[Expired]], None], released: Callable[[], None]) -> Duties:
        return Duties(
            self.identity.worker_id,
            lambda not_before: registry_of_duties.discover() | builtin(renew, announce, not_before),
            place=f"{self.identity.host}:{self.identity.pid}",
            heartbeat_seconds=self.settings.heartbeat_seconds,
            released=released,
            on_error=self._on_error,
        )

    def _go_on_without(self, run: Run) -> None:
        """Replace the thread of a run that does not react; replace the event loop only if a coroutine blocks it."""
        if run.thread_id:
            (run.lane or self.parts.lanes.shared).pool.replace(run)
        else:
            self.parts.loop.replace_if_blocked(run)
        self.parts.maintenance.wake()  # shows the stuck run on the Workers page at once

    def _replace_process(self, run: Run) -> bool:
        """Request the replacement of this process if it has a parent; return whether it will be replaced."""
        if self._parent is None:
            return False
        self._parent.overdue(run.job.id)
        return self._recycling.replace(run)

    def _listen_to(self, parent: Parent) -> None:
        parent.told_to_stop, parent.left_alone = self._hear_stop, self.stop
        parent.recover = self.parts.maintenance.recover
        self.parts.maintenance.recovered = parent.recovered

    def _lost(self, lost: Sequence[Expired]) -> None:
        self.parts.maintenance.announce(lost)

    def _settled(self, retrying: bool) -> None:
        self._recycling.counted(self.parts.finisher.done)
        if self.parts.dispatcher.wants_slots:  # else its last claim found fewer jobs than free slots
            self.parts.dispatcher.wake()
        if retrying:  # the retry may be due before the next run of the duty
            self.parts.duties.notify_due()
        self.parts.duties.notify_ended()

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
        seen = {"slots": lanes.slots, "running": len(self.parts.runs), "stuck": stuck, "scaling": told(self.parts.scaler.decision)}
        show(self.identity, self.settings, state, services=services, failed_modules=imports.failures(), **seen)

    def _say_goodbye(self) -> None:
        # In a thread, since the database may never answer, and in a daemon, so that the process ends in any case.
        farewell = threading.Thread(target=say_goodbye, args=(self.identity,), daemon=True)
        farewell.start()
        farewell.join(GOODBYE_SECONDS)
        self.identity.release()
        hygiene.close_all()
        for end in self._pipe:
            os.close(end)
