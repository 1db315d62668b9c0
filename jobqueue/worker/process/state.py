"""The state of one worker process for its probes: whether its heartbeats are written, and whether it claims jobs."""

from __future__ import annotations

import time

from jobqueue.conf import Settings
from jobqueue.worker.base import DatabaseService
from jobqueue.worker.probes.state import ENDED, ProbeState
from jobqueue.worker.process.parts import Parts
from jobqueue.worker.reporting.heartbeat import LEASES, Heartbeat

LATE_HEARTBEATS = 2  # a hanging heartbeat is reported when this number of heartbeats is missing


def probe_state(parts: Parts, settings: Settings, *, ending: bool) -> ProbeState:
    """Return the state of the process of these parts; it may be called in any thread, and waits for nothing."""
    dispatcher = parts.dispatcher
    begun = dispatcher.alive or dispatcher.stopping
    idle = "The worker is ending." if ending else _idle(parts, settings) if begun else "The worker is starting."
    return ProbeState(begun, ending, _unhealthy(parts.heartbeat, settings) if begun else "", idle, figures(parts))


def _unhealthy(heartbeat: Heartbeat, settings: Settings) -> str:
    """Return why heartbeats are not written, or "".

    A heartbeat that fails and is retried is no reason to end the process at once: in an outage of the database, it still has outcomes to
    write, until their leases are given up.
    """
    silent, limit = time.monotonic() - heartbeat.last_good_turn, LATE_HEARTBEATS * settings.heartbeat_seconds
    if heartbeat.stopping:
        return ""
    if not heartbeat.alive:
        return "The heartbeat thread has ended."
    if heartbeat.failures and heartbeat.busy_seconds <= limit:
        limit = LEASES * settings.lease_seconds
    return f"No heartbeat was written for {silent:.1f} s; one is due every {settings.heartbeat_seconds:g} s." if silent > limit else ""


def _idle(parts: Parts, settings: Settings) -> str:
    """Return why the process claims no jobs, or ""."""
    dispatcher = parts.dispatcher
    if parts.policy.is_drained:
        return "The worker is drained."
    if dispatcher.failures:
        return "The last claim failed; the log of the worker says why."
    if dispatcher.busy_seconds > LATE_HEARTBEATS * settings.heartbeat_seconds:
        return f"The claim has waited for the database for {dispatcher.busy_seconds:.1f} s."
    return "" if parts.lanes.slots else "All slots are occupied by runs that do not stop."


def figures(parts: Parts) -> dict[str, float]:
    """Return the figures of the process (see `ProbeState.figures`)."""
    statements = sum(service.statements for service in parts.services if isinstance(service, DatabaseService))
    ended = {f"{ENDED}:{status or 'lost'}": number for status, number in parts.finisher.ended.items()}
    return {
        "slots": parts.lanes.slots,
        "running_jobs": len(parts.runs),
        "stuck_runs": parts.lanes.stuck + parts.loop.stuck,
        "loop_lag_seconds": parts.loop.lag_seconds(),
        "claimed_jobs": parts.dispatcher.claimed + parts.dispatcher.taken_over,
        "statements": statements,
        "leases_renewed": parts.heartbeat.renewed,
        "leases_lost": parts.heartbeat.lost,
        **ended,
    }
