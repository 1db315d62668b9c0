"""The answers to the questions of a duty."""

from __future__ import annotations

from jobqueue.db.questions import ask, compile_questions
from jobqueue.duties.base import Duty
from jobqueue.models import Job


def seconds_to_work(duty: Duty) -> float | None:
    """Return in how many seconds a duty has work, as the worker learns it."""
    database = Job.objects.database
    return duty.seconds_to_work(*ask(database, compile_questions(database, duty.questions())))
