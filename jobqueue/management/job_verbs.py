"""What the subcommands of ``manage.py jobqueue`` that act on single jobs have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.core.management.base import CommandError

from jobqueue import public_ids
from jobqueue.core.answers import Answer, Verdict
from jobqueue.exceptions import JobDoesNotExist

MAX_ID = 2**63 - 1


def act(texts: list[str], verb: Callable[[int], Answer], done: str) -> tuple[Any, list[str], bool]:
    """Do one thing to each job; return the verdicts as JSON values and as sentences, and whether none was refused."""
    data, lines, fine = [], [], True
    for number in [job_id(text) for text in texts]:
        try:
            answer = verb(number)
        except JobDoesNotExist as error:
            data.append({"job": number, "verdict": Verdict.REFUSED.value, "status": None, "reason": str(error)})
            lines.append(f"Job {number} was not {done}: there is no such job.")
            fine = False
        else:
            data.append(as_json(answer))
            lines.append(sentence(answer, done))
            fine = fine and bool(answer)
    return data, lines, fine


def as_json(answer: Answer) -> dict[str, Any]:
    """Return an answer as JSON values."""
    return {"job": answer.job_id, "verdict": answer.verdict.value, "status": answer.status, "reason": answer.reason}


def sentence(answer: Answer, done: str) -> str:
    """Return an answer as a sentence; `done` is the participle of what was asked for, for example "canceled"."""
    if answer.verdict is Verdict.REFUSED:
        return f"Job {answer.job_id} was not {done}: {answer.reason}."
    if answer.verdict is Verdict.REQUESTED:
        return f"Job {answer.job_id} runs and was asked to stop, to be {done}."
    return f"Job {answer.job_id} was {done}: it is {answer.status}."


def job_id(text: str) -> int:
    """Return the number of the job that an argument names; raise CommandError if it is neither a number nor a public id."""
    if (found := public_ids.job_id_of(text)) is not None:
        return found
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= 19 else 0
    if not 0 < number <= MAX_ID:
        rule = f"it must be a whole number from 1 to {MAX_ID}, the job's number, or its public id"
        raise CommandError(f"JOB_ID is {text[:80]!r}; {rule}.")
    return number
