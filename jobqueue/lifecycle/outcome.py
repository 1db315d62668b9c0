"""What came of one run, as data: the executor makes it, `finish` turns it into a move."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, NamedTuple

from jobqueue import conf
from jobqueue.core.masking import PLAIN, Mask
from jobqueue.core.queue_rules import ALL, ServedQueues
from jobqueue.core.targets import Target
from jobqueue.db import Claimed, Lease, LeaseHolder

UNKNOWN_TASK_PAUSE_SECONDS = 5.0
UNKNOWN_SINCE = "unknown_since"  # in the options of a job: when a worker first found its task unknown
INTERRUPTED_BY_USER = "Job was interrupted by user"
INTERRUPTED_BY_SHUTDOWN = "Job was interrupted by shutdown of its worker"
EXPIRED = "Job expired: it had not begun by the time given as expires"
FINISHED_FIRST = "Job finished before the interrupt reached it"


class Kind(Enum):
    """Say how a run ended; the row's own flag decides what comes of it."""

    SUCCESS = "success"
    ERROR = "error"
    RETRY = "retry"
    INTERRUPTED = "interrupted"  # somebody's request to stop reached it
    STOPPED = "stopped"  # the worker had to end, and the job is held for a person
    HANDED_BACK = "handed back"  # given back in order, not having failed; with a delay it waits so long
    UNKNOWN_TASK = "unknown task"
    EXPIRED = "expired"  # it was to begin by a time that has passed
    SLEEP = "sleep"  # a phase has ended, and the job goes on later
    WAIT = "wait"  # a phase has ended, and the job goes on once others have ended


@dataclass(slots=True)
class Failure:
    """Describe an exception: its dotted path, one line, and the traceback."""

    path: str
    summary: str
    traceback: str
    mask: Mask = field(default=PLAIN, compare=False, repr=False)  # what has hidden the job's secrets in these texts


class Done(NamedTuple):
    """Name a phase that has finished, its place from 0 on, and its result as JSON text."""

    name: str
    position: int
    result: str = "null"


class Shown(NamedTuple):
    """Carry what a running phase shows."""

    name: str
    progress: int
    message: str | None


class Told(NamedTuple):
    """Carry the last progress that a run has told of; it may not be written yet. No message is none that was told."""

    progress: int
    message: str | None


@dataclass(slots=True)
class Outcome:
    """Tell how one run ended. Times are of the monotonic clock; `result` and `metadata` are JSON text."""

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
    phase: Shown | None = None
    told: Told | None = None
    done: Done | None = None  # the phase that a suspended run has ended
    following: str = ""  # the phase at which it goes on
    until: datetime | None = None
    committed: bool = False  # written already, in the task's own transaction
    abandoned: str = ""  # the line of code where the thread still is, if the run was given up on
    error: BaseException | None = None  # for signals and log records; its frames hold no locals

    @property
    def text(self) -> str:
        """What the job's row says of it: the run's own last message, or its failure."""
        return self.message or (self.failure.summary if self.failure else "")

    @property
    def left(self) -> dict[str, str]:
        """What the entry of the history also says: the release that ran the job, and a thread that did not stop."""
        said = {"abandoned": f"its thread is still at {self.abandoned}"} if self.abandoned else {}
        return {"release": release, **said} if (release := conf.release()) else said

    def explained(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Return columns whose message also says that the run was abandoned, if it was."""
        if not self.abandoned:
            return fields
        message = fields.get("message", "")
        return {**fields, "message": f"{message}{'; ' if message else ''}abandoned: {self.left['abandoned']}"}


@dataclass(frozen=True, slots=True)
class HandOver:
    """Which worker takes the next job of a target whose job it ends, and where it may not.

    `leases` are the runs whose slots are free for it; `queues` are those that it serves, `closed` those that are
    paused or limited.
    """

    lender: LeaseHolder
    leases: Collection[Lease] = ()
    queues: ServedQueues = ALL
    closed: Sequence[str] = ()


class Settled(NamedTuple):
    """What the database made of an outcome; `status` is empty if the lease was lost.

    `later` means that another transaction has locked the row or the target: nothing was written, and the lease still stands. `refused` says
    why the row took no change at all; the status is empty then, too. `following` is the next job of the target if the worker took it over
    with this end; `releases` means that the next job was released, to be claimed by any worker.
    """

    outcome: Outcome
    status: str
    later: bool = False
    refused: str = ""
    following: Claimed | None = None
    releases: bool = False

    @property
    def written(self) -> bool:
        """Whether the outcome counts."""
        return bool(self.status)
