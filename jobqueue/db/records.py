"""What goes into the hot statements and comes out of them, as named tuples."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple


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


class Success(NamedTuple):
    """Carry one successful end; times are seconds before the statement."""

    job_id: int
    token: int
    result: str
    began_ago: float
    ended_ago: float
    message: str | None
    metadata: str | None


class Failed(NamedTuple):
    """Carry one end by a failure; `failure` and `data` are what the job's history and its event tell of it, `metadata` is JSON text."""

    job_id: int
    token: int
    began_ago: float
    delay_seconds: float
    message: str
    metadata: str | None
    progress: int | None
    failure: dict[str, Any]
    data: dict[str, Any] | None


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


class Lender(NamedTuple):
    """Say to whom jobs are leased, and for how long."""

    owner: str
    lease_seconds: float


class Relayed(NamedTuple):
    """Tell what ending a job and taking over the next of its target came to: the lock, the rows written, the jobs taken."""

    locked: bool
    written: list[Lease]
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
