"""Confirmation before running jobs are interrupted, before any job is deleted, and before several are canceled.

The page lists the jobs and the effects that cannot be undone. Jobs that were confirmed once are not listed again.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.http import HttpRequest

from jobqueue.admin import columns, listing
from jobqueue.admin.verbs import Verb
from jobqueue.core.amounts import plural
from jobqueue.models import Job

FIELD = "confirmed"
MAX_SHOWN = 50


def doubtful(verb: Verb, jobs: list[Job]) -> list[Job]:
    """Return the jobs that the user must confirm: all that the verb would end, if it ends more than one for good."""
    able = [job for job in jobs if verb.possible(job)]
    return able if verb.final and len(able) > 1 else [job for job in able if verb.asks(job)]


def confirmed(request: HttpRequest) -> set[int]:
    """Return the numbers of the jobs that the user was shown and has confirmed."""
    given = (listing.as_id(part) for part in request.POST.get(FIELD, "").split(","))
    return {job_id for job_id in given if job_id is not None}


def context(verb: Verb, jobs: list[Job], *, on_list: bool) -> dict[str, Any]:
    """Return the context of the page, with the fields with which its form repeats the request, confirmed."""
    to_confirm = doubtful(verb, jobs)
    shown = to_confirm[:MAX_SHOWN]
    workers = listing.workers_of(shown)
    for job in shown:
        job.worker = workers.get(columns.owner_of(job))  # type: ignore[attr-defined]
    fields = [(FIELD, ",".join(str(job.pk) for job in to_confirm))]
    if on_list:
        fields += [("action", verb.name), *((ACTION_CHECKBOX_NAME, str(job.pk)) for job in jobs)]
    statuses = Counter(job.status for job in to_confirm)
    kind = f"{verb.asks_about.label.lower()} " if verb.asks_about and [*statuses] == [verb.asks_about] else ""
    others = len(jobs) - len(to_confirm)
    covers_all = len(to_confirm) == sum(verb.possible(job) for job in jobs)
    return {
        "title": f"{verb.label} {plural(len(to_confirm), f'{kind}job')}?",
        "counts": [(Job.Status(status).label, number) for status, number in statuses.most_common()] if len(to_confirm) > 1 else [],
        "verb": verb,
        "rows": [
            (job, columns.status(job), columns.task(job), columns.progress(job), columns.ran(job), columns.worker(job)) for job in shown
        ],
        "unnamed": len(to_confirm) - len(shown),
        "others": others,
        "others_note": _others_note(verb, others, able=not covers_all),
        "fields": fields,
        "button": f"{verb.label} {len(jobs if not covers_all else to_confirm):,} jobs"
        if len(to_confirm) > 1 or not covers_all
        else f"{verb.label} job {to_confirm[0].pk}",
    }


def _others_note(verb: Verb, number: int, *, able: bool) -> str:
    """Return a text about the other selected jobs: those that the verb also changes, or those that it cannot change."""
    if able:
        return f"{plural(number, 'job')} that {'does' if number == 1 else 'do'} not run."
    if verb.asks_about is None:
        return f"{plural(number, 'job')} that {'runs' if number == 1 else 'run'}, and cannot be {verb.done}."
    return f"{plural(number, 'job')} that cannot be {verb.done} now."
