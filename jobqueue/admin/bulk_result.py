"""Run one verb on some jobs, with a transaction and an audit record each, and report the results."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from django.contrib import messages
from django.db import Error
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _lazy
from django.utils.translation import gettext_noop

from jobqueue import db
from jobqueue.admin import figures
from jobqueue.admin.base import GONE
from jobqueue.admin.labels import translated
from jobqueue.admin.verbs import Verb
from jobqueue.core import repeats, states
from jobqueue.core.answers import Answer, Verdict
from jobqueue.exceptions import JobDoesNotExist
from jobqueue.models import Job

NO_DATABASE = gettext_noop("the database did not respond; try again")
# About one job, and about several.
DONE = _lazy("Job %(number)s was %(done)s."), _lazy("%(number)s jobs were %(done)s.")
REQUESTED = _lazy("Running job %(number)s was %(done)s."), _lazy("%(number)s running jobs were %(done)s.")
WITHDRAWN = (
    _lazy("The request to stop was withdrawn from running job %(number)s."),
    _lazy("The request to stop was withdrawn from %(number)s running jobs."),
)
REFUSED = _lazy("Job %(number)s was not %(done)s: %(reasons)s."), _lazy("%(number)s jobs were not %(done)s: %(reasons)s.")

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
            messages_shown.append((messages.SUCCESS, _said(self.done, DONE, done=self.verb.done)))
        if self.requested:
            messages_shown.append((messages.SUCCESS, _said(self.requested, REQUESTED, done=self.verb.requested)))
        if self.withdrawn:
            messages_shown.append((messages.SUCCESS, _said(self.withdrawn, WITHDRAWN)))
        if self.refused:
            ids = [job_id for refused in self.refused.values() for job_id in refused]
            reasons = "; ".join(
                f"{translated(reason)} ({len(refused)})" if len(ids) > 1 else translated(reason) for reason, refused in self.refused.items()
            )
            messages_shown.append((messages.WARNING, _said(ids, REFUSED, done=self.verb.done, reasons=reasons)))
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


def _said(ids: list[int], texts: tuple[Promise, Promise], *, done: str = "", reasons: str = "") -> str:
    """Return the sentence about one job, which it names, or about several."""
    values = {"number": ids[0] if len(ids) == 1 else figures.count(len(ids)), "done": translated(done), "reasons": reasons}
    return str(texts[len(ids) > 1]) % values
