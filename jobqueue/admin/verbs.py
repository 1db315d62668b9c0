"""What a person can do to jobs: cancel, pause, resume, run now; each with a permission of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from django.contrib.auth.models import AnonymousUser, User
from django.http import HttpRequest

from jobqueue import states
from jobqueue.lifecycle import control
from jobqueue.models import Job


@dataclass(frozen=True, slots=True)
class Verb:
    """Name an action, who may do it, when it is possible, and how to tell of it."""

    name: str
    label: str
    done: str
    requested: str
    interrupts: str  # what happens to a running job, for the confirmation; empty: it is never interrupted
    act: Callable[[int], control.Answer]
    possible: Callable[[Job], bool]

    @property
    def permission(self) -> str:
        """The permission that it takes."""
        return f"jobqueue.{self.name}_job"

    def allowed(self, request: HttpRequest) -> bool:
        """Return whether the request's user has the permission."""
        user: User | AnonymousUser = request.user
        return user.has_perm(self.permission)


def _can_cancel(job: Job) -> bool:
    return states.allows(job.place, states.CANCELED) and not (job.cancel_requested and job.cancel_outcome == states.Status.CANCELED)


def _can_pause(job: Job) -> bool:
    return states.allows(job.place, states.PAUSED) and not job.cancel_requested


def _can_resume(job: Job) -> bool:
    return job.status in (states.Status.PAUSED, states.Status.ERROR) or job.cancel_requested


def _can_run_now(job: Job) -> bool:
    return job.place == states.PENDING_TIME


CANCEL: Final = Verb(
    name="cancel",
    label="Cancel",
    done="canceled",
    requested="asked to stop and will be canceled",
    interrupts="Canceling is final: the task is interrupted where it stands, and what it has done so far is not undone.",
    act=control.cancel,
    possible=_can_cancel,
)
PAUSE: Final = Verb(
    name="pause",
    label="Pause",
    done="paused",
    requested="asked to stop and will be paused",
    interrupts="Pausing interrupts the task where it stands; when the job is resumed, the task starts from its beginning.",
    act=control.pause,
    possible=_can_pause,
)
RESUME: Final = Verb(
    name="resume", label="Resume", done="resumed", requested="resumed", interrupts="", act=control.resume, possible=_can_resume
)
RUN_NOW: Final = Verb(
    name="run_now",
    label="Run now",
    done="queued to run now",
    requested="queued to run now",
    interrupts="",
    act=control.run_now,
    possible=_can_run_now,
)
VERBS: Final = {verb.name: verb for verb in (CANCEL, PAUSE, RESUME, RUN_NOW)}
