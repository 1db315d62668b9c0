"""The line of jobs behind a target: the key of the lock of the target, and the jobs that a claim may take. Nothing here uses a database.

A target is the name of something that only one job at a time can work on, such as the account of a customer. It
belongs to one tenant.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

BLOCKING = ("PAUSED", "ERROR")


class Target(NamedTuple):
    """A target of a tenant."""

    tenant: str
    name: str

    @property
    def key(self) -> int:
        """The key of its advisory lock, a signed number of 64 bits; two targets may share one."""
        text = f"jobqueue:{len(self.tenant)}:{self.tenant}{self.name}"
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), signed=True)


class Candidate(NamedTuple):
    """A QUEUED job with a target that a claim has found."""

    id: int
    claim_rank: int
    tenant: str
    target: str

    @property
    def tenant_target(self) -> Target:
        """The target of the job."""
        return Target(self.tenant, self.target)


class TargetJob(NamedTuple):
    """A job that a decision about its target depends on: it holds or blocks the target, or is the best QUEUED or the best parked job."""

    tenant: str
    target: str
    id: int
    claim_rank: int
    status: str
    holds: bool
    is_parked: bool


@dataclass(slots=True)
class ClaimDecision:
    """The decision of a claim about its candidates: which to take and which to park. All other candidates stay unchanged."""

    take: list[int] = field(default_factory=list)
    park: list[int] = field(default_factory=list)
    release: dict[int, Target] = field(default_factory=dict)
    """The parked jobs that come before all QUEUED ones of their targets: the release of another job skipped them while they were locked."""
    crowded: set[Target] = field(default_factory=set)
    """Targets whose other QUEUED jobs can be parked at once, too: a job holds or blocks them, or was just claimed."""


def in_lock_order(targets: Iterable[Target]) -> list[int]:
    """Return the keys of the targets' locks, each once, in the order in which all transactions take them, to avoid deadlocks."""
    return sorted({target.key for target in targets})


def decide(candidates: Sequence[Candidate], target_jobs: Iterable[TargetJob]) -> ClaimDecision:
    """Decide on candidates by the state of their targets after the locks were taken.

    The head of the line is the job that may run next. It is the holder if that is QUEUED or parked, whatever its
    priority. Otherwise, it is the job with the highest priority, and of several such jobs the oldest. A job does not
    block itself. So a holder that waits to run again is parked only if another job of the target is PAUSED or in
    ERROR.
    """
    decision = ClaimDecision()
    heads: dict[Target, TargetJob] = {}
    holders: dict[Target, list[TargetJob]] = {}
    for job in target_jobs:
        target = Target(job.tenant, job.target)
        if job.holds or job.status in BLOCKING:
            holders.setdefault(target, []).append(job)
        if (job.status == "QUEUED" or job.is_parked) and (target not in heads or _line_order(job) < _line_order(heads[target])):
            heads[target] = job
    lines: dict[Target, list[Candidate]] = {}
    for candidate in candidates:
        lines.setdefault(candidate.tenant_target, []).append(candidate)
    for target, line in lines.items():
        _decide_one(decision, target, line, heads.get(target), holders.get(target, ()))
    return decision


def _line_order(job: TargetJob) -> tuple[bool, int, int]:
    return (not job.holds, job.claim_rank, job.id)


def _decide_one(
    decision: ClaimDecision, target: Target, line: Sequence[Candidate], head: TargetJob | None, others: Sequence[TargetJob]
) -> None:
    if head is not None and head.is_parked and all(job.id == head.id for job in others):
        decision.release[head.id] = target
        return
    is_taken = False
    for candidate in line:
        blocked = any(other.id != candidate.id for other in others)
        if not blocked and head is not None and candidate.id == head.id:
            decision.take.append(candidate.id)
            is_taken = True
        else:
            decision.park.append(candidate.id)
    # If the head is not among the candidates of this claim, only these candidates are parked. No job holds the
    # target yet, and the claim that takes the head parks the rest of the line.
    if others or (is_taken and len(line) > 1):
        decision.crowded.add(target)
