"""What goes into the hot statements and comes out of them, as named tuples."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, NamedTuple

NO_LEASE: Final[dict[str, Any]] = {
    "lease_owner": "",
    "lease_expires_at": None,
    "heartbeat_at": None,
    "cancel_requested": False,
    "cancel_outcome": "",
}
"""The columns that the end of a run clears, whatever the run came to."""

_LITERALS = {"": "''", None: "NULL", False: "FALSE"}
CLEARED: Final = ", ".join(f"{name} = {_LITERALS[value]}" for name, value in NO_LEASE.items())
"""The same as the assignments of an UPDATE."""

STANDING_FLAG: Final = "CASE WHEN cancel_requested THEN cancel_outcome ELSE '' END"
"""The SQL of the request to stop that stands on a row; "" for none."""

MAX_ENTRIES: Final = 30
"""How many entries the history of a job keeps: the first and the newest."""


class Lease(NamedTuple):
    """Name one run of one job: the fence of every owner's write."""

    job_id: int
    token: int


class Claimed(NamedTuple):
    """Carry what a worker needs to run a job; JSON columns stay text."""

    id: int
    claim_rank: int
    lease_token: int
    attempt: int
    failures: int
    crashes: int
    max_attempts: int
    task: str
    queue: str
    tenant: str
    target: str
    recovery: str
    args: str
    kwargs: str
    options: str
    metadata: str
    phase: str = ""
    expired: bool = False  # it had not begun when it was to expire


class RunEnd(NamedTuple):
    """Where the end of one run moves its job, and what it writes. Times are seconds before or after the statement; JSON is text.

    It is written only if a person's standing request to stop is `flag` ("" for none), and if the job has no phases in case it is `alone`.
    None leaves a column as it is.
    """

    job_id: int
    token: int
    flag: str
    alone: bool
    status: str
    waiting_for: str
    event: str  # "": the log has it already
    data: str | None = None  # of the event
    shown: str | None = None  # data of the event of the last progress, if that is not in the log yet
    began_ago: float | None = None
    ended_ago: float | None = None  # None: the job has not ended
    given_back: int = 0  # 1: the run costs no attempt
    forgets_start: bool = False
    failed: int = 0
    message: str | None = None
    metadata: str | None = None
    progress: int | None = None
    result: str | None = None
    run_in: float | None = None
    run_at: datetime | None = None
    phase: str | None = None
    options: str | None = None  # an object; its keys replace those of the row
    entry: str | None = None  # of the history; the statement adds the attempt, the worker and the times


class EndedRun(NamedTuple):
    """What the database made of the end of one run."""

    job_id: int
    token: int
    status: str
    queue: str
    tenant: str

    @property
    def lease(self) -> Lease:
        """The lease of the run."""
        return Lease(self.job_id, self.token)


class Mark(NamedTuple):
    """Carry what a running job shows: that it began, how far it is, what it says, what it keeps."""

    job_id: int
    token: int
    began_ago: float
    progress: int | None
    message: str | None
    metadata: str | None


class Renewed(NamedTuple):
    """Tell what a renewal found on one row."""

    job_id: int
    token: int
    cancel_requested: bool
    cancel_outcome: str


class Scope(NamedTuple):
    """Say which QUEUED jobs a claim looks at: one tenant's, of some queues (none named: all of them)."""

    tenant: str = ""
    queues: tuple[str, ...] = ()
    most: dict[str, int] | None = None  # how many of a queue at the most, where a limit says so
    without: tuple[str, ...] = ()  # targets whose jobs are left out
    stuck: tuple[int, ...] = ()  # jobs that are left out, since their rows take no change


class LeaseHolder(NamedTuple):
    """Say to whom jobs are leased, and for how long."""

    owner: str
    lease_seconds: float


class Relayed(NamedTuple):
    """What ending a job and taking over the next of its target came to: the lock, the rows written, the jobs taken."""

    locked: bool
    written: list[EndedRun]
    taken: list[Claimed]


class Event(NamedTuple):
    """Carry one event to be written, with what a webhook tells of its job; `data` is JSON text, and `at` None means now."""

    job_id: int
    name: str
    at: datetime | None
    attempt: int
    tenant: str
    target: str
    data: str | None
    queue: str
    task: str
    status: str
    url: str
