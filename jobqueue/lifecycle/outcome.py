"""The outcome of a run, as data: the executor makes it, and `finish` turns it into a move."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, NamedTuple

from jobqueue import conf
from jobqueue.core.error_kinds import error_key
from jobqueue.core.masking import PLAIN, Mask
from jobqueue.core.queue_rules import ALL, ServedQueues
from jobqueue.core.targets import Target
from jobqueue.db import Claimed, Lease, LeaseHolder

UNKNOWN_TASK_PAUSE_SECONDS = 5.0
INTERRUPTED_BY_USER = "Job was interrupted by user"
INTERRUPTED_BY_SHUTDOWN = "Job was interrupted by shutdown of its worker"
EXPIRED = "Job expired: it had not started by the time given as expires"
FINISHED_FIRST = "Job finished before the interrupt reached it"


class Kind(Enum):
    """The ways in which a run ends. The flag in the row also decides what becomes of the job."""

    SUCCESS = "success"
    ERROR = "error"
    RETRY = "retry"
    INTERRUPTED = "interrupted"  # a request to stop reached the run
    STOPPED = "stopped"  # the worker had to end, and the job waits until an operator resumes it
    HANDED_BACK = "handed back"  # returned to the queue without a failure, after the delay if there is one
    UNKNOWN_TASK = "unknown task"
    EXPIRED = "expired"  # the time by which the run had to begin has passed
    SLEEP = "sleep"  # a phase has ended, and the job continues later
    WAIT = "wait"  # a phase has ended, and the job continues when its children have ended


@dataclass(slots=True)
class Failure:
    """An exception: its dotted path, one line, and the traceback."""

    path: str
    summary: str
    traceback: str
    task: str = ""
    mask: Mask = field(default=PLAIN, compare=False, repr=False)  # the mask that has hidden the job's secrets in these texts


class FinishedPhase(NamedTuple):
    """A phase that has finished, its position from 0 on, and its result as JSON text."""

    name: str
    position: int
    result: str = "null"


class PhaseProgress(NamedTuple):
    """The progress and the message of a running phase."""

    name: str
    progress: int
    message: str | None


class LastProgress(NamedTuple):
    """The last progress that a run has reported, which may not be written yet. The message is None if none was reported."""

    progress: int
    message: str | None


@dataclass(slots=True)
class Outcome:
    """The end of one run. Times are of the monotonic clock; `result` and `metadata` are JSON text."""

    lease: Lease
    kind: Kind
    began: float | None = None
    ended: float | None = None
    result: str = "null"
    failure: Failure | None = None
    delay_seconds: float = 0.0
    message: str | None = None
    metadata: str | None = None
    progress: int | None = None
    target: Target | None = None
    phase: PhaseProgress | None = None
    told: LastProgress | None = None
    done: FinishedPhase | None = None  # the phase that a suspended run has ended
    following: str = ""  # the phase at which the job continues
    until: datetime | None = None
    committed: bool = False  # written already, in the task's own transaction
    abandoned: str = ""  # the line of code where the thread still is, if the run was abandoned
    error: BaseException | None = None  # for signals and log records; its frames have no locals

    @property
    def text(self) -> str:
        """The text for the job's row: the last message of the run, or its failure."""
        return self.message or (self.failure.summary if self.failure else "")

    @property
    def error_key(self) -> str:
        """The kind of the error, for a job that ends in ERROR."""
        failure = self.failure
        return error_key(failure.task, failure.path, failure.summary) if failure else error_key("", "", self.text)

    @property
    def left(self) -> dict[str, str]:
        """More values for the history entry: the release that ran the job, and the place of a thread that did not stop."""
        place = {"abandoned": f"its thread is still at {self.abandoned}"} if self.abandoned else {}
        return {"release": release, **place} if (release := conf.release()) else place

    def explained(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Return the columns, with a message that also says that the run was abandoned, if it was."""
        if not self.abandoned:
            return fields
        message = fields.get("message", "")
        return {**fields, "message": f"{message}{'; ' if message else ''}abandoned: {self.left['abandoned']}"}


@dataclass(frozen=True, slots=True)
class HandOver:
    """The worker that takes the next jobs of targets whose jobs it ends, and what it may take.

    `leases` are the runs whose slots are free for a next job. `queues` are the queues that the worker serves,
    `excluded_queues` those that are paused or limited.
    """

    holder: LeaseHolder
    leases: Collection[Lease] = ()
    queues: ServedQueues = ALL
    excluded_queues: Sequence[str] = ()


class Settled(NamedTuple):
    """The result of writing an outcome; `status` is empty if the lease was lost.

    `later` means that another transaction has locked the row or the target: nothing was written, and the lease is
    still valid. `refused` is the reason why the row could not be changed at all; `status` is empty then, too.
    `following` is the next job of the target if the worker took it over with this end. `releases` means that the next
    job was released for any worker to claim.
    """

    outcome: Outcome
    status: str
    later: bool = False
    refused: str = ""
    following: Claimed | None = None
    releases: bool = False

    @property
    def written(self) -> bool:
        """Whether the outcome was stored."""
        return bool(self.status)
