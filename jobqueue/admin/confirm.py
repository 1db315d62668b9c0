"""Ask before running jobs are interrupted or any are deleted: the page names them, and those it named are not asked about again."""

from __future__ import annotations

from typing import Any

from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.http import HttpRequest

from jobqueue.admin import cells, listing
from jobqueue.admin.verbs import Verb
from jobqueue.models import Job

FIELD = "confirmed"
MOST_SHOWN = 50


def doubtful(verb: Verb, jobs: list[Job]) -> list[Job]:
    """Return which of the jobs a person must be asked about."""
    return [job for job in jobs if verb.asks(job)]


def confirmed(request: HttpRequest) -> set[int]:
    """Return the numbers of the jobs that the user was shown and has confirmed."""
    given = (listing.as_id(part) for part in request.POST.get(FIELD, "").split(","))
    return {job_id for job_id in given if job_id is not None}


def context(verb: Verb, jobs: list[Job], *, on_list: bool) -> dict[str, Any]:
    """Return what the page shows, and the fields with which its form says the same again, confirmed."""
    found = doubtful(verb, jobs)
    shown = found[:MOST_SHOWN]
    workers = listing.workers_of(shown)
    for job in shown:
        job.worker = workers.get(cells.owner_of(job))  # type: ignore[attr-defined]
    fields = [(FIELD, ",".join(str(job.pk) for job in found))]
    if on_list:
        fields += [("action", verb.name), *((ACTION_CHECKBOX_NAME, str(job.pk)) for job in jobs)]
    kind = f"{verb.asks_about.label.lower()} " if verb.asks_about else ""
    noun = f"{kind}job" if len(found) == 1 else f"{kind}jobs"
    others = len(jobs) - len(found)
    return {
        "title": f"{verb.label} {len(found):,} {noun}?",
        "verb": verb,
        "rows": [(job, cells.status(job), cells.task(job), cells.progress(job), cells.ran(job), cells.worker(job)) for job in shown],
        "unnamed": len(found) - len(shown),
        "others": others,
        "others_note": _others_note(verb, others),
        "fields": fields,
        "button": f"{verb.label} {len(jobs):,} jobs" if len(jobs) > 1 else f"{verb.label} job {jobs[0].pk}",
    }


def _others_note(verb: Verb, number: int) -> str:
    jobs, do = ("job", "does") if number == 1 else ("jobs", "do")
    if verb.asks_about is None:
        return f"{number} {jobs} that {'runs' if number == 1 else 'run'}, and cannot be {verb.done}."
    return f"{number} {jobs} that {do} not run."
