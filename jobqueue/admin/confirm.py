"""Ask before running jobs are interrupted: the page names them, and only those that it named are interrupted without asking again."""

from __future__ import annotations

from typing import Any

from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.http import HttpRequest

from jobqueue.admin import cells, listing
from jobqueue.admin.verbs import Verb
from jobqueue.models import Job
from jobqueue.states import Status

FIELD = "confirmed"
MOST_SHOWN = 50


def running(verb: Verb, jobs: list[Job]) -> list[Job]:
    """Return which of the jobs the verb would interrupt."""
    return [job for job in jobs if verb.interrupts and job.status == Status.RUNNING and verb.possible(job)]


def confirmed(request: HttpRequest) -> set[int]:
    """Return the numbers of the running jobs that the user was shown and has confirmed."""
    given = (listing.as_id(part) for part in request.POST.get(FIELD, "").split(","))
    return {job_id for job_id in given if job_id is not None}


def context(verb: Verb, jobs: list[Job], *, on_list: bool) -> dict[str, Any]:
    """Return what the page shows, and the fields with which its form says the same again, confirmed."""
    found = running(verb, jobs)
    shown = found[:MOST_SHOWN]
    workers = listing.workers_of(shown)
    for job in shown:
        job.worker = workers.get(cells.owner_of(job))  # type: ignore[attr-defined]
    fields = [(FIELD, ",".join(str(job.pk) for job in found))]
    if on_list:
        fields += [("action", verb.name), *((ACTION_CHECKBOX_NAME, str(job.pk)) for job in jobs)]
    noun = "job" if len(found) == 1 else "jobs"
    return {
        "title": f"{verb.label} {len(found):,} running {noun}?",
        "verb": verb,
        "rows": [(job, cells.status(job), cells.task(job), cells.progress(job), cells.ran(job), cells.worker(job)) for job in shown],
        "unnamed": len(found) - len(shown),
        "others": len(jobs) - len(found),
        "fields": fields,
        "button": f"{verb.label} {len(jobs):,} jobs" if len(jobs) > 1 else f"{verb.label} job {jobs[0].pk}",
    }
