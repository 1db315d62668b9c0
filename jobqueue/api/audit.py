"""Keep a record of what people change, where the admin keeps its own: in the same transaction, so there is none without the other."""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.contrib.auth import get_user_model
from django.db.models import Model

from jobqueue import states
from jobqueue.lifecycle.control import Answer, Verdict
from jobqueue.models import Job

SENTENCES = {"cancel": "Canceled", "pause": "Paused", "resume": "Resumed", "run_now": "Queued to run now", "delete": "Deleted"}


def record(user: Any, job: Job, verb: str, answer: Answer) -> None:
    """Tell what a verb did to a job; nothing where it was refused."""
    if answer.verdict is Verdict.REQUESTED:
        write(user, job, f"While it ran: asked to stop ({verb}), over REST.")
    elif answer.verdict is Verdict.DONE and verb != "delete" and answer.status == states.Status.RUNNING:
        write(user, job, "Request to stop withdrawn, over REST.")
    elif answer.verdict is Verdict.DONE:
        write(user, job, f"{SENTENCES[verb]} over REST; the job was {job.status}.", gone=verb == "delete")


def write(user: Any, what: Model, text: str, *, gone: bool = False) -> None:
    """Write one entry of the admin's log; none where there is no admin, or the user is not one of the project's."""
    if not apps.is_installed("django.contrib.admin") or not isinstance(user, get_user_model()) or user.pk is None:
        return
    from django.contrib.admin.models import CHANGE, DELETION, LogEntry
    from django.contrib.contenttypes.models import ContentType

    LogEntry.objects.create(
        user_id=user.pk,
        content_type=ContentType.objects.get_for_model(what),
        object_id=str(what.pk),
        object_repr=str(what)[:200],
        action_flag=DELETION if gone else CHANGE,
        change_message=text,
    )
