"""Replaced: an outcome without the values that a database may refuse. What was decided of the job stays, as far as that can be."""

from __future__ import annotations

from dataclasses import replace

from jobqueue import texts
from jobqueue.lifecycle.aside import reason_of
from jobqueue.lifecycle.outcome import Failure, Kind, Outcome

REFUSED = "outcome could not be stored"


def plainer(outcome: Outcome) -> Outcome:
    """Return an outcome of the same kind: its texts in ASCII, which every database takes, and nothing that the task kept or showed."""
    failure = outcome.failure
    if failure is not None:
        path, summary, traceback = (texts.ascii_only(one) for one in (failure.path, failure.summary, failure.traceback))
        failure = replace(failure, path=path, summary=summary, traceback=traceback)
    message = None if outcome.message is None else texts.ascii_only(outcome.message)
    return replace(outcome, failure=failure, message=message, metadata=None, progress=None, phase=None, told=None)


def as_error(outcome: Outcome, error: BaseException) -> Outcome:
    """Return an outcome in place of one that the database refuses: the error of the job is that, and the reason of the run behind it."""
    behind = f" (the run: {texts.ascii_only(outcome.text)})" if outcome.text else ""
    summary = texts.ascii_only(f"{REFUSED}: {reason_of(error)}{behind}")
    failure = Failure(texts.exception_path(error), summary[:500], "")
    return replace(plainer(outcome), kind=Kind.ERROR, result="null", failure=failure, message=REFUSED)
