"""Confirmation before running jobs are interrupted, before any job is deleted, and before several are canceled.

The page lists the jobs and the effects that cannot be undone. Jobs that were confirmed once are not listed again.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from jobqueue.admin import columns, figures, listing
from jobqueue.admin.labels import status_label, translated
from jobqueue.admin.verbs import Verb
from jobqueue.core.states import Status
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
    is_running = [*statuses] == [Status.RUNNING] == [verb.asks_about]
    others = len(jobs) - len(to_confirm)
    covers_all = len(to_confirm) == sum(verb.possible(job) for job in jobs)
    return {
        "title": _title(verb, len(to_confirm), is_running=is_running),
        "counts": [(status_label(status), number) for status, number in statuses.most_common()] if len(to_confirm) > 1 else [],
        "verb": verb,
        "rows": [
            (job, columns.status(job), columns.task(job), columns.progress(job), columns.ran(job), columns.worker(job)) for job in shown
        ],
        "unnamed": len(to_confirm) - len(shown),
        "others": others,
        "others_note": _others_note(verb, others, able=not covers_all),
        "fields": fields,
        "button": _button(verb, to_confirm if covers_all else jobs, to_confirm[0] if covers_all and len(to_confirm) == 1 else None),
    }


def _others_note(verb: Verb, number: int, *, able: bool) -> str:
    """Return a text about the other selected jobs: those that the verb also changes, or those that it cannot change."""
    if able:
        text = ngettext("%(number)s job that does not run.", "%(number)s jobs that do not run.", number)
    elif verb.asks_about is None:
        text = ngettext("%(number)s job that runs, and cannot be %(done)s.", "%(number)s jobs that run, and cannot be %(done)s.", number)
    else:
        text = ngettext("%(number)s job that cannot be %(done)s now.", "%(number)s jobs that cannot be %(done)s now.", number)
    return text % {"number": figures.count(number), "done": translated(verb.done)}


def _title(verb: Verb, number: int, *, is_running: bool) -> str:
    if is_running:
        text = ngettext("%(verb)s %(number)s running job?", "%(verb)s %(number)s running jobs?", number)
    else:
        text = ngettext("%(verb)s %(number)s job?", "%(verb)s %(number)s jobs?", number)
    return text % {"verb": verb.label, "number": figures.count(number)}


def _button(verb: Verb, jobs: list[Job], one: Job | None) -> str:
    if one is not None:
        return _("%(verb)s job %(number)s") % {"verb": verb.label, "number": one.pk}
    return ngettext("%(verb)s %(number)s job", "%(verb)s %(number)s jobs", len(jobs)) % {
        "verb": verb.label,
        "number": figures.count(len(jobs)),
    }
