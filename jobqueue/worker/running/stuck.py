"""The description and the outcome of a run that does not react to an interrupt."""

from __future__ import annotations

import sys
import threading
from types import FrameType

from jobqueue.bounded import call_within
from jobqueue.core.time_limits import exceeded
from jobqueue.lifecycle.outcome import Kind, Outcome
from jobqueue.worker.running.judging import failed, interrupted, raised
from jobqueue.worker.running.run import Reason, Run

POLICY_SECONDS = 2.0  # how long the interrupter, and the end of the worker, wait for a back-off function of the project


def place_of(run: Run) -> str:
    """Return the name of a run's thread and the line where it is now; for a coroutine, those of the event loop's thread."""
    ident = run.thread_id or run.loop_id
    name = next((thread.name for thread in threading.enumerate() if thread.ident == ident), "The thread")
    line = line_of(run)
    return f"{name} is at {line}" if line else name


def line_of(run: Run) -> str:
    """Return the line where the thread of a run is now, and the line in the module of its task that led there; empty if it is gone."""
    frame = sys._current_frames().get(run.thread_id or run.loop_id or 0)
    if frame is None:
        return ""
    own: FrameType | None = frame
    module = run.job.task.rpartition(".")[0]
    while own is not None and own.f_globals.get("__name__") != module:
        own = own.f_back
    return _line(frame) if own is None or own is frame else f"{_line(frame)}, called from {_line(own)}"


def _line(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno}, in {frame.f_code.co_name}"


def notice(run: Run) -> str | None:
    """Return the message for the row of a job whose run does not stop and keeps the job RUNNING; None for any other run."""
    if not run.place or run.abandoned or run.ended is not None:
        return None
    return f"The run does not stop: its thread is still at {line_of(run) or 'an unknown line'}"


def abandoned(run: Run) -> Outcome:
    """Return the outcome of an abandoned run in a process that continues: its row names the line where its thread is."""
    outcome = given_up(run)
    outcome.abandoned = line_of(run) or "an unknown line"
    return outcome


def given_up(run: Run) -> Outcome:
    """Return the outcome of an abandoned run: that of its interrupt, or a failure at its time limit, by the task's policy."""
    if run.reason is not None and not (run.overdue and run.reason is Reason.SHUTDOWN):
        return interrupted(run)
    error = exceeded(run.limit)
    error.add_note(f"The task did not react to that. {run.place}")
    try:
        return call_within(POLICY_SECONDS, lambda: raised(run, error))
    except BaseException as wrong:  # noqa: BLE001 - a bug here must fail the job
        wrong.add_note(f"It was raised by the back-off of the task, after: {error}")
        return failed(run, Kind.ERROR, wrong)
