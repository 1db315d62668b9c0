"""The construction of the parts of one worker process.

Each part is complete when it is made. Signals (see ``worker/wakeups.py``) lead from a part to the parts that are made after it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from jobqueue import conf
from jobqueue.conf import Settings
from jobqueue.core.service import ErrorHandler
from jobqueue.db import LeaseHolder
from jobqueue.duties import registry as registry_of_duties
from jobqueue.duties.builtin import builtin
from jobqueue.models import Job
from jobqueue.schedules.sync import write_declarations
from jobqueue.worker.board import Board
from jobqueue.worker.claim_policy import ClaimPolicy
from jobqueue.worker.claiming.claimer import Claimer
from jobqueue.worker.claiming.dispatcher import Dispatcher
from jobqueue.worker.claiming.listener import Listener
from jobqueue.worker.claiming.tenant_slots import TenantSlots
from jobqueue.worker.duties.contender import Duties
from jobqueue.worker.fleet.scaler import Scaler
from jobqueue.worker.process.identity import Identity
from jobqueue.worker.process.maintenance import Maintenance
from jobqueue.worker.process.parts import Parts
from jobqueue.worker.reporting.announcer import Announcer
from jobqueue.worker.reporting.finisher import Finisher, HandOvers
from jobqueue.worker.reporting.heartbeat import Heartbeat
from jobqueue.worker.reporting.reporter import Reporter
from jobqueue.worker.running.interrupter import Interrupter
from jobqueue.worker.running.lanes import Lanes
from jobqueue.worker.running.loop import Loop
from jobqueue.worker.running.pool import Pool
from jobqueue.worker.running.run import Run, Runs
from jobqueue.worker.wakeups import Signal, Wakeups


class Hooks(NamedTuple):
    """What the parts call in the supervisor.

    `show` writes the row on the Workers page. `ends` returns whether the process ends. `replace_process` requests its replacement, and
    returns whether it will be replaced.
    """

    show: Callable[[], None]
    ends: Callable[[], bool]
    replace_process: Callable[[Run], bool]
    on_error: ErrorHandler


def build(settings: Settings, identity: Identity, wakeups: Wakeups, hooks: Hooks, board: Board | None) -> Parts:
    """Return the parts of a worker process, connected by their signals; `board` is the memory that it shares with its parent."""
    on_error = hooks.on_error
    tenant_slots = TenantSlots(on_error) if conf.calls_for_tenant_slots() else None
    policy = ClaimPolicy(
        tuple(settings.queues),
        settings.max_running,
        wakeups.setter(Signal.TENANT_SLOTS),
        tenant_slots.latest if tenant_slots else conf.tenant_slots,
    )
    runs, announcer = Runs(), Announcer(on_error)
    finishers = _finishers(settings, identity.worker_id, runs, policy, wakeups, on_error)
    put = finishers[0].put
    lanes, loop, reporter = Lanes(lambda: Pool(put)), Loop(put), Reporter(runs, on_error, settings.heartbeat_seconds)
    interrupter = _interrupter(settings, finishers[0], lanes, loop, wakeups, hooks, board)
    heartbeat = Heartbeat(runs, interrupter, settings.lease_seconds, settings.heartbeat_seconds, on_error)
    has_listener = settings.notify and Job.objects.database.can_notify
    listener = Listener(identity.worker_id, settings.queues, wakeups, on_error) if has_listener else None
    scaler = _scaler(settings, lanes, policy, wakeups, on_error)
    maintenance = _maintenance(identity, interrupter, scaler, wakeups, hooks)
    dispatcher = Dispatcher(
        identity.worker_id,
        Claimer(LeaseHolder(identity.worker_id, settings.lease_seconds), policy, lanes),
        runs=runs,
        lanes=lanes,
        loop=loop,
        finisher=finishers[0],
        reporter=reporter,
        poll_seconds=settings.poll_seconds,
        is_notified=lambda: listener is not None and listener.healthy,
        lost=maintenance.announce,
        max_crashes=settings.max_crashes,
        crowded=wakeups.setter(Signal.FULL),
        watch=interrupter.watch,
        on_error=on_error,
    )
    duties = _duties(settings, identity, heartbeat, maintenance, wakeups, on_error)
    core = (policy, runs, lanes, loop, finishers, interrupter, heartbeat, reporter, dispatcher, maintenance, duties, scaler, listener)
    parts = Parts(*core, announcer, tenant_slots)
    _subscribe(wakeups, parts, policy)
    return parts


def _finishers(
    settings: Settings, worker_id: str, runs: Runs, policy: ClaimPolicy, wakeups: Wakeups, on_error: ErrorHandler
) -> list[Finisher]:
    hand_overs = HandOvers(policy, wakeups.setter(Signal.HANDED_OVER), wakeups.setter(Signal.UNKNOWN_JOBS), wakeups.setter(Signal.WORK))
    common = (runs, worker_id, settings.lease_seconds, wakeups.setter(Signal.ENDED), on_error)
    # A second one would wait for the first on a database with one writer.
    second = None if Job.objects.database.one_writer else Finisher(*common, "finisher-2")
    first = Finisher(*common, second=second, hand_overs=hand_overs)
    return [first] if second is None else [first, second]


def _interrupter(
    settings: Settings, finisher: Finisher, lanes: Lanes, loop: Loop, wakeups: Wakeups, hooks: Hooks, board: Board | None
) -> Interrupter:
    def replace_thread(run: Run) -> None:
        # The event loop only if a coroutine blocks it.
        if run.thread_id:
            (run.lane or lanes.shared).pool.abandon_thread(run)
        else:
            loop.replace_if_blocked(run)
        wakeups.set(Signal.STATE)  # shows the stuck run on the Workers page at once

    return Interrupter(
        finisher.put,
        replace_thread,
        hooks.on_error,
        wakeups.setter(Signal.STATE),
        settings.max_workers,
        settings.timeout_grace_seconds,
        hooks.replace_process,
        board,
    )


def _scaler(settings: Settings, lanes: Lanes, policy: ClaimPolicy, wakeups: Wakeups, on_error: ErrorHandler) -> Scaler:
    return Scaler(
        lanes,
        policy,
        least=settings.min_workers,
        most=settings.max_workers,
        scale_seconds=settings.scale_seconds,
        resized=wakeups.setter(Signal.SLOTS),
        decided=wakeups.setter(Signal.STATE),
        on_error=on_error,
    )


def _maintenance(identity: Identity, interrupter: Interrupter, scaler: Scaler, wakeups: Wakeups, hooks: Hooks) -> Maintenance:
    return Maintenance(
        identity,
        show=hooks.show,
        stuck=lambda: interrupter.stuck,
        found=wakeups.setter(Signal.WORK),
        changed=lambda: (scaler.decision, hooks.ends()),
        at_start=lambda: write_declarations()[1],
        recovered=wakeups.setter(Signal.RECOVERED),
        on_error=hooks.on_error,
    )


def _duties(
    settings: Settings, identity: Identity, heartbeat: Heartbeat, maintenance: Maintenance, wakeups: Wakeups, on_error: ErrorHandler
) -> Duties:
    return Duties(
        identity.worker_id,
        lambda not_before: registry_of_duties.discover() | builtin(heartbeat.renew_all, maintenance.announce, not_before),
        place=f"{identity.host}:{identity.pid}",
        heartbeat_seconds=settings.heartbeat_seconds,
        released=wakeups.setter(Signal.WORK),
        on_error=on_error,
    )


def _subscribe(wakeups: Wakeups, parts: Parts, policy: ClaimPolicy) -> None:
    """Connect the signals with the parts that receive them."""
    dispatcher, duties, maintenance, subscribe = parts.dispatcher, parts.duties, parts.maintenance, wakeups.subscribe
    subscribe(Signal.WORK, dispatcher.notified)
    subscribe(Signal.SLOTS, dispatcher.wake)
    subscribe(Signal.TENANT_SLOTS, parts.lanes.set_slots)
    subscribe(Signal.FULL, parts.scaler.rescale_now)
    subscribe(Signal.HANDED_OVER, dispatcher.begin_next)
    subscribe(Signal.UNKNOWN_JOBS, dispatcher.lose_track)
    subscribe(Signal.ENDED, lambda retrying: dispatcher.run_ended(), duties.notify_ended)
    subscribe(Signal.STOP_REQUESTED, parts.heartbeat.read_flags)
    subscribe(Signal.QUEUES, policy.invalidate)
    subscribe(Signal.DUE, duties.notify_due)
    subscribe(Signal.DUTIES, duties.notify)
    subscribe(Signal.WORKERS, maintenance.show_now)
    subscribe(Signal.STATE, maintenance.wake)
    subscribe(Signal.DEAD, maintenance.recover)
