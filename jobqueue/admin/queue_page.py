"""The page of one queue: its load, the first jobs in line, the running jobs, and what is wrong with its name."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest

from jobqueue.access import visible
from jobqueue.admin import load_charts, load_page, task_choices
from jobqueue.admin.labels import translated
from jobqueue.admin.overview import data
from jobqueue.admin.overview.page import period_of
from jobqueue.admin.overview.rows import queue_rows
from jobqueue.admin.pages import Pages
from jobqueue.core.loads import QUEUE
from jobqueue.insight import narrowed, open_jobs, queue_names, samples
from jobqueue.insight.queues import QueueState
from jobqueue.models import Job, Worker


def state_of(user: Any, name: str) -> QueueState | None:
    """Return the state of a queue; None if the user may not know of it, or if nothing knows its name."""
    if "\0" in name:
        return None
    found = next((state for state in narrowed.queue_states_for(user) if state.name == name), None)
    if found is None and (name in task_choices.queues() or (not visible.is_narrowed(user) and queue_names.is_known(name))):
        return QueueState(name, False, None, 0, 0, None)
    return found


def context(request: HttpRequest, state: QueueState) -> dict[str, Any]:
    """Return the parts of the page that the user may view."""
    pages, period, user, name = Pages(request), period_of(request), request.user, state.name
    found: dict[str, Any] = {"period": period, "state": state}
    loads = None
    if samples.may_see(user):
        found["warning"] = translated(queue_names.warning(name))
        members = data.members() if pages.may_view(Worker) else None
        pauses = [(queue, at) for queue, at in data.pauses() if queue == name]
        loads = load_page.load_of(QUEUE, name, period)
        found |= load_page.context(loads, name, period, load_charts.marks(loads, members, pauses))
    [found["row"]] = queue_rows(pages, [state], loads)
    if pages.may_view(Job):
        found["jobs_url"] = pages.jobs(queue=name)
        found["errors_url"] = pages.jobs(queue=name, status="ERROR")
        found["first"] = load_page.job_rows(request, open_jobs.first_in_line(name, user, load_page.MAX_JOBS))
        found["running"] = load_page.job_rows(request, open_jobs.running({"queue": name}, user, load_page.MAX_JOBS))
    return found
