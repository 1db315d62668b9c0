"""The parameters and the results of the hot statements, as named tuples."""

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
"""The columns that the end of each run clears."""

_LITERALS = {"": "''", None: "NULL", False: "FALSE"}
CLEARED: Final = ", ".join(f"{name} = {_LITERALS[value]}" for name, value in NO_LEASE.items())
"""The assignments of an UPDATE that clear them."""

STANDING_FLAG: Final = "CASE WHEN cancel_requested THEN cancel_outcome ELSE '' END"
"""The SQL of the outcome that a pending request to stop asks for; "" if there is none."""

MAX_ENTRIES: Final = 30
"""The maximum number of entries in the history of a job: the first one and the newest."""


class Lease(NamedTuple):
    """One run of one job. Each write of the worker names both values, so it changes nothing when the lease is lost."""

    job_id: int
    token: int


class Claimed(NamedTuple):
    """What a worker needs to run a job; JSON columns are text."""

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
    expired: bool = False  # the job had not started by its time `expires_at`


class RunEnd(NamedTuple):
    """The move of a job whose run ends, and the values to write. Times are seconds before or after the statement. JSON is text.

    It is written only if the request to stop in the row equals `flag` ("" for none). If `alone` is set, it is written
    only if the job has no phases. None leaves a column unchanged.
    """

    job_id: int
    token: int
    flag: str
    alone: bool
    status: str
    waiting_for: str
    event: str  # if it is "", neither the start nor the end is written to the log
    began_ago: float | None = None
    ended_ago: float | None = None  # None: the job has not ended
    message: str | None = None
    metadata: str | None = None
    progress: int | None = None
    result: str | None = None
    data: str | None = None  # the data of the event
    shown: str | None = None  # data of the event of the last progress, if it is not in the log yet
    given_back: int = 0  # 1: the run uses up no attempt
    forgets_start: bool = False
    failed: int = 0
    run_in: float | None = None
    run_at: datetime | None = None
    phase: str | None = None
    options: str | None = None  # an object; its keys replace those of the row
    entry: str | None = None  # the entry in the history; the statement adds the attempt, the worker and the times
    error_key: str | None = None


class EndedRun(NamedTuple):
    """A run whose end was stored; `queue` and `tenant` are set if the job may run again."""

    job_id: int
    token: int
    queue: str = ""
    tenant: str = ""

    @property
    def lease(self) -> Lease:
        """The lease of the run."""
        return Lease(self.job_id, self.token)


class Mark(NamedTuple):
    """What a running job reports: its start, its progress, its message and its metadata."""

    job_id: int
    token: int
    began_ago: float
    progress: int | None
    message: str | None
    metadata: str | None


class Renewed(NamedTuple):
    """The result of a renewal for one row."""

    job_id: int
    token: int
    cancel_requested: bool
    cancel_outcome: str


class Scope(NamedTuple):
    """The QUEUED jobs that a claim reads: those of one tenant, in some queues (empty: in all)."""

    tenant: str = ""
    queues: tuple[str, ...] = ()
    most: dict[str, int] | None = None  # for queues with a limit, the maximum number of jobs to take
    without: tuple[str, ...] = ()  # targets whose jobs are excluded
    stuck: tuple[int, ...] = ()  # jobs that are excluded because their rows cannot be changed


class LeaseHolder(NamedTuple):
    """The worker that jobs are leased to, and the duration of its leases."""

    owner: str
    lease_seconds: float


class Relayed(NamedTuple):
    """The result of ending a job and taking over the next of its target: the lock, the rows written, the jobs taken."""

    locked: bool
    written: list[EndedRun]
    taken: list[Claimed]


class Event(NamedTuple):
    """An event to be written, with what a webhook reports about its job; `data` is JSON text, and `at` None means now."""

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
