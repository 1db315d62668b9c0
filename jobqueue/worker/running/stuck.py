"""What is known of a run that does not react: where its thread is, and what becomes of its job."""

from __future__ import annotations

import sys
import threading

from jobqueue.bounded import call_within
from jobqueue.core.time_limits import exceeded
from jobqueue.lifecycle.outcome import Kind, Outcome
from jobqueue.worker.running.judging import failed, interrupted, raised
from jobqueue.worker.running.run import Reason, Run

POLICY_SECONDS = 2.0  # the interrupter and the end of the worker wait for a back-off of the project


def place_of(run: Run) -> str:
    """Return which thread a run is in, and the line where that is now; for a coroutine the event loop's."""
    ident = run.thread_id or run.loop_id
    name = next((thread.name for thread in threading.enumerate() if thread.ident == ident), "The thread")
    line = line_of(run)
    return f"{name} is at {line}" if line else name


def line_of(run: Run) -> str:
    """Return the line of code where the thread of a run is now; empty if the thread is gone."""
    frame = sys._current_frames().get(run.thread_id or run.loop_id or 0)
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}, in {frame.f_code.co_name}"


def notice(run: Run) -> str | None:
    """Return what the row of a job says while its run does not stop and keeps the job RUNNING; None for any other run."""
    if not run.place or run.abandoned or run.ended is not None:
        return None
    return f"The run does not stop: its thread is still at {line_of(run) or 'an unknown line'}"


def abandoned(run: Run) -> Outcome:
    """Return the outcome of a run that is given up on while this process goes on: its row names the line where its thread is."""
    outcome = given_up(run)
    outcome.abandoned = line_of(run) or "an unknown line"
    return outcome


def given_up(run: Run) -> Outcome:
    """Return the outcome of a run that is given up on: that of its interrupt, or a failure at its time limit, by the task's policy."""
    if run.reason is not None and not (run.overdue and run.reason is Reason.SHUTDOWN):
        return interrupted(run)
    error = exceeded(run.limit)
    error.add_note(f"The task did not react to that. {run.place}")
    try:
        return call_within(POLICY_SECONDS, lambda: raised(run, error))
    except BaseException as wrong:  # noqa: BLE001 - a fault in here must end as the job's error
        wrong.add_note(f"It was raised by the back-off of the task, after: {error}")
        return failed(run, Kind.ERROR, wrong)
