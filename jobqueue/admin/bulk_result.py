"""Run one verb on some jobs, with a transaction and an audit record each, and report the results."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from django.contrib import messages
from django.db import Error

from jobqueue import db
from jobqueue.admin.base import GONE
from jobqueue.admin.verbs import Verb
from jobqueue.core import repeats, states
from jobqueue.core.answers import Answer, Verdict
from jobqueue.exceptions import JobDoesNotExist
from jobqueue.models import Job

NO_DATABASE = "the database did not respond; try again"

Audit = Callable[[Job, Answer | None, str], object]


@dataclass(slots=True)
class BulkResult:
    """The results of one verb, counted."""

    verb: Verb
    done: list[int] = field(default_factory=list)
    requested: list[int] = field(default_factory=list)
    withdrawn: list[int] = field(default_factory=list)
    refused: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    def add(self, answer: Answer) -> None:
        """Count the answer to the request for one job."""
        if answer.verdict is Verdict.REFUSED:
            self.refused[answer.reason].append(answer.job_id)
        elif answer.verdict is Verdict.REQUESTED:
            self.requested.append(answer.job_id)
        elif answer.status == states.Status.RUNNING:
            self.withdrawn.append(answer.job_id)
        else:
            self.done.append(answer.job_id)

    def messages(self) -> list[tuple[int, str]]:
        """Return the messages to show, each with its level."""
        messages_shown = []
        if self.done:
            messages_shown.append((messages.SUCCESS, f"{_jobs(self.done)} {_were(self.done)} {self.verb.done}."))
        if self.requested:
            messages_shown.append((messages.SUCCESS, f"{_jobs(self.requested, 'running ')} {_were(self.requested)} {self.verb.requested}."))
        if self.withdrawn:
            messages_shown.append(
                (messages.SUCCESS, f"The request to stop was withdrawn from {_jobs(self.withdrawn, 'running ').lower()}.")
            )
        if self.refused:
            ids = [job_id for refused in self.refused.values() for job_id in refused]
            reasons = "; ".join(f"{reason} ({len(refused)})" if len(ids) > 1 else reason for reason, refused in self.refused.items())
            messages_shown.append((messages.WARNING, f"{_jobs(ids)} {_were(ids)} not {self.verb.done}: {reasons}."))
        return messages_shown


def perform(verb: Verb, jobs: Iterable[Job], audit: Audit) -> BulkResult:
    """Run `verb` on each job; after a connection error of the database, skip the rest."""
    result = BulkResult(verb)
    database_answers = True
    for job in jobs:
        try:
            if database_answers:
                result.add(_one(verb, job, audit))
            else:
                result.refused[NO_DATABASE].append(job.pk)
        except JobDoesNotExist:
            audit(job, None, GONE)
            result.refused[GONE].append(job.pk)
        except Error as error:
            repeats.log(logging.ERROR, "Job %s could not be %s from the admin.", job.pk, verb.done, kind=verb.done, exc_info=True)
            result.refused[NO_DATABASE].append(job.pk)
            database_answers = not db.is_connection_error(error)
    return result


def _one(verb: Verb, job: Job, audit: Audit) -> Answer:
    # The change and its record are committed together.
    with Job.objects.database.atomic():
        answer = verb.act(job.pk)
        if answer.verdict is Verdict.DONE:
            withdrawn = answer.status == states.Status.RUNNING
            audit(job, answer, "Request to stop withdrawn." if withdrawn else f"{verb.done.capitalize()}; the job was {job.status}.")
        elif answer.verdict is Verdict.REQUESTED:
            audit(job, answer, f"While it ran: {verb.requested}.")
        else:
            audit(job, answer, answer.reason)
        return answer


def _jobs(ids: list[int], kind: str = "") -> str:
    if len(ids) == 1:
        return f"{kind}job {ids[0]}".capitalize()
    return f"{len(ids):,} {kind}jobs"


def _were(ids: list[int]) -> str:
    return "was" if len(ids) == 1 else "were"
