"""Refusals: if the database refuses a value of an outcome, the outcomes are written one by one.

As many values as possible of each are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from jobqueue import db
from jobqueue.core import states, texts
from jobqueue.lifecycle import aside
from jobqueue.lifecycle.aside import reason_of
from jobqueue.lifecycle.outcome import Failure, Kind, Outcome, Settled
from jobqueue.models import Job

REFUSED = "outcome could not be stored"


Write = Callable[[Sequence[Outcome]], list[Settled]]


def one_by_one_if_refused(write: Write, outcomes: Sequence[Outcome], write_refused: Write, write_one: Write | None = None) -> list[Settled]:
    """Write outcomes together, or one by one (by `write_one`, if given) if the database refuses them.

    `write_refused` writes an outcome that is refused as an error.
    """
    if not outcomes:
        return []
    done, error = _try(write, outcomes)
    if error is None:
        return done
    # A bad value must not affect the other outcomes, nor delay them: a refused outcome takes several statements.
    alone = [(outcome, *_try(write_one or write, [outcome])) for outcome in outcomes]
    done = [settled for _, written, refusal in alone if refusal is None for settled in written]
    for outcome, _, refusal in alone:
        if refusal is not None:
            done += _write_refused(write_one or write, outcome, write_refused, refusal)
    return done


def _try(write: Write, outcomes: Sequence[Outcome]) -> tuple[list[Settled], Exception | None]:
    """Write outcomes; return those written, and the error if the database refuses them."""
    try:
        with Job.objects.database.savepoint_if_in_transaction():
            return write(outcomes), None
    except Exception as error:
        if not db.is_refusal(error):
            raise
        return [], error


def _write_refused(write: Write, outcome: Outcome, write_refused: Write, error: Exception) -> list[Settled]:
    """Write an outcome that was refused, in up to three ways.

    First mend the row and write the outcome unchanged. If that is refused, write it without the values that may
    be the cause, and then as an error. If all of these are refused, set the job aside.
    """
    aside.try_mend(outcome.lease, states.Status.RUNNING)
    last = error
    for attempt, attempted in ((write, outcome), (write, _plainer(outcome)), (write_refused, _as_error(outcome, error))):
        done, refusal = _try(attempt, [attempted])
        if refusal is None:
            return done
        last = refusal
    moved = aside.try_set_aside(outcome.lease, states.Status.RUNNING, "its outcome cannot be stored", last)
    if moved:
        return [Settled(outcome, states.Status.ERROR.value)]
    # Not moved: the lease was lost, or even the last write was refused.
    refused = reason_of(last) if outcome.lease in Job.objects.still_ours([outcome.lease]) else ""
    return [Settled(outcome, "", refused=refused)]


def _plainer(outcome: Outcome) -> Outcome:
    """Return an outcome of the same kind with its texts in ASCII, which every database accepts, and without metadata and progress."""
    failure = outcome.failure
    if failure is not None:
        path, summary, traceback = (texts.ascii_only(text) for text in (failure.path, failure.summary, failure.traceback))
        failure = replace(failure, path=path, summary=summary, traceback=traceback)
    message = None if outcome.message is None else texts.ascii_only(outcome.message)
    return replace(outcome, failure=failure, message=message, metadata=None, progress=None, phase=None, told=None)


def _as_error(outcome: Outcome, error: BaseException) -> Outcome:
    """Return an error to store in place of a refused outcome. It names the refusal, and then the run's own message."""
    behind = f" (the run: {texts.ascii_only(outcome.text)})" if outcome.text else ""
    summary = texts.ascii_only(f"{REFUSED}: {reason_of(error)}{behind}")
    task = outcome.failure.task if outcome.failure else ""
    failure = Failure(texts.exception_path(error), summary[:500], "", task)
    return replace(_plainer(outcome), kind=Kind.ERROR, result="null", failure=failure, message=REFUSED)
