"""The state of a fleet for the probes of its parent process, from the states that its workers send with their signs of life."""

from __future__ import annotations

import time
from collections.abc import Sequence

from jobqueue.worker.fleet.child import Worker
from jobqueue.worker.fleet.parent import PULSE_SECONDS
from jobqueue.worker.fleet.processes import Processes
from jobqueue.worker.probes.state import ProbeState

MAX_NAMED = 10


def fleet_state(processes: Processes, silent_seconds: float) -> ProbeState:
    """Return the state of the fleet; it may be called in any thread.

    The parent process replaces single workers itself. So the fleet is unhealthy only if every worker is, and idle only if every worker is.
    """
    ending = processes.stops > 0 or processes.failed
    states = [(worker, _state_of(worker, silent_seconds)) for worker in processes.workers]
    unhealthy = "" if any(not state.unhealthy for _, state in states) else _listed([(worker, state.unhealthy) for worker, state in states])
    idle = "" if any(not state.idle for _, state in states) else _listed([(worker, state.idle) for worker, state in states])
    return ProbeState(any(state.begun for _, state in states), ending, unhealthy, "The workers are ending." if ending else idle)


def fleet_figures(processes: Processes) -> dict[str, dict[str, float]]:
    """Return the newest figures of each live worker, by its number."""
    return {
        str(worker.number): worker.state.figures for worker in processes.workers if worker.process is not None and worker.state is not None
    }


def _state_of(worker: Worker, silent_seconds: float) -> ProbeState:
    state, silent = worker.state, time.monotonic() - worker.last_message_at
    if worker.process is None:
        return ProbeState(idle="It has ended.")
    if worker.served_at is None or state is None:
        return ProbeState(idle="It is starting.")
    if silent > silent_seconds + PULSE_SECONDS:
        text = f"It has not responded for {silent:.1f} s."
        return state._replace(unhealthy=text, idle=text)
    return state


def _listed(texts: Sequence[tuple[Worker, str]]) -> str:
    lines = [f"{worker.name}: {text}" for worker, text in texts[:MAX_NAMED]]
    return "\n".join([*lines, *([f"and {len(texts) - MAX_NAMED} more"] if len(texts) > MAX_NAMED else [])])
