"""A claim that returns only the jobs."""

from __future__ import annotations

from collections.abc import Sequence

from jobqueue.db import Claimed, LeaseHolder, Scope
from jobqueue.lifecycle import claim as verbs


def claim(
    owner: str, queues: Sequence[str], limit: int, lease_seconds: float, after: tuple[int, int] | None = None, tenant: str = ""
) -> list[Claimed]:
    """Take up to `limit` jobs of one tenant, best first."""
    return verbs.claim(LeaseHolder(owner, lease_seconds), Scope(tenant, tuple(queues)), limit, after).jobs
