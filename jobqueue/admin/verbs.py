"""The verbs on jobs: cancel, pause, resume, run now, delete; each with a permission of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from django.http import HttpRequest
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy, gettext_noop

from jobqueue.core import states
from jobqueue.core.answers import Answer
from jobqueue.core.states import Status
from jobqueue.lifecycle import control
from jobqueue.models import Job


@dataclass(frozen=True, slots=True)
class Verb:
    """An action on jobs: its permission, the states in which it is possible, and its texts."""

    name: str
    label: Promise
    done: str  # English, as the audit records it; pages translate it
    requested: str
    act: Callable[[int], Answer]
    possible: Callable[[Job], bool]
    statuses: tuple[Status, ...]  # the statuses in which it may be possible
    warning: Promise | str = ""  # the effect on the jobs, for the confirmation; empty: no confirmation
    asks_about: Status | None = Status.RUNNING  # None: confirm each job that it can change
    final: bool = False  # it cannot be undone: for more than one job, always confirm

    def allowed(self, request: HttpRequest) -> bool:
        """Return whether the request's user has this verb's permission."""
        return request.user.has_perm(f"jobqueue.{self.name}_job")

    def named_for(self, job: Job) -> Verb:
        """Return this verb with the label that says what it does with the job."""
        labels = {"ERROR": gettext_lazy("Retry"), "RUNNING": gettext_lazy("Withdraw stop")} if self.name == "resume" else {}
        return replace(self, label=labels.get(job.status, self.label))

    def asks(self, job: Job) -> bool:
        """Return whether the user must confirm the verb for this job."""
        return bool(self.warning) and self.asks_about in (None, job.status) and self.possible(job)


def _can_cancel(job: Job) -> bool:
    return states.allows(job.place, states.CANCELED) and not (job.cancel_requested and job.cancel_outcome == Status.CANCELED)


def _can_pause(job: Job) -> bool:
    return states.allows(job.place, states.PAUSED) and not job.cancel_requested


def _can_resume(job: Job) -> bool:
    return job.status in (Status.PAUSED, Status.ERROR) or job.cancel_requested


def _can_delete(job: Job) -> bool:
    return job.status != Status.RUNNING


def _can_run_now(job: Job) -> bool:
    return job.place == states.PENDING_TIME


CANCEL: Final = Verb(
    name="cancel",
    label=gettext_lazy("Cancel"),
    done=gettext_noop("canceled"),
    requested=gettext_noop("asked to stop, to be canceled"),
    act=control.cancel,
    possible=_can_cancel,
    statuses=(Status.PENDING, Status.QUEUED, Status.RUNNING, Status.PAUSED, Status.ERROR),
    warning=gettext_lazy(
        "Canceling is final: a canceled job never runs again, and cannot be resumed. A running task is interrupted, and "
        "what it has done so far is not undone. If other jobs wait for the target of a job, the next one starts."
    ),
    final=True,
)
PAUSE: Final = Verb(
    name="pause",
    label=gettext_lazy("Pause"),
    done=gettext_noop("paused"),
    requested=gettext_noop("asked to stop, to be paused"),
    act=control.pause,
    possible=_can_pause,
    statuses=(Status.PENDING, Status.QUEUED, Status.RUNNING),
    warning=gettext_lazy("The task is interrupted. When the job is resumed, the task starts from its beginning."),
)
RESUME: Final = Verb(
    name="resume",
    label=gettext_lazy("Resume"),
    done=gettext_noop("resumed"),
    requested=gettext_noop("resumed"),
    act=control.resume,
    possible=_can_resume,
    statuses=(Status.PAUSED, Status.ERROR),
)
RUN_NOW: Final = Verb(
    name="run_now",
    label=gettext_lazy("Run now"),
    done=gettext_noop("queued to run now"),
    requested=gettext_noop("queued to run now"),
    act=control.run_now,
    possible=_can_run_now,
    statuses=(Status.PENDING,),
)
DELETE: Final = Verb(
    name="delete",
    label=gettext_lazy("Delete"),
    done=gettext_noop("deleted"),
    requested=gettext_noop("deleted"),
    act=control.delete,
    possible=_can_delete,
    statuses=tuple(status for status in Status if status != Status.RUNNING),
    warning=gettext_lazy(
        "Deleting a job removes its arguments, its result and its history; this cannot be undone. If other jobs wait for "
        "its target, the next one starts."
    ),
    asks_about=None,
    final=True,
)
VERBS: Final = {verb.name: verb for verb in (CANCEL, PAUSE, RESUME, RUN_NOW, DELETE)}
