"""The orders of the indexes by which jobs are counted, so that their rows are not read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from jobqueue.core.search import Search
from jobqueue.core.states import Status, WaitingFor

# The statuses whose index has the order of the numbers, with the queue and the task.
NEWEST_FIRST: Final = (Status.PAUSED, Status.ERROR, Status.CANCELED)
ORDERS: Final[Mapping[str, tuple[str, ...]]] = {
    WaitingFor.TIME: ("run_at", "pk"),
    WaitingFor.CHILDREN: ("pk",),
    WaitingFor.TARGET: ("tenant", "target", "claim_rank", "pk"),
    Status.QUEUED: ("tenant", "queue", "claim_rank", "pk"),
    Status.RUNNING: ("lease_owner",),
}
ENDED_ORDER: Final = ("-finished_at", "-pk")
FILTERED: Final = {"status", "queue", "task", "tenant"}


def index_order(search: Search) -> tuple[str, ...] | None:
    """Return the order of an index that has all jobs which meet a search; None if there is none, or if it is that of the numbers."""
    status, names = search.texts.get("status", ""), {*search.texts}
    if search.times or search.job_id is not None:
        return ENDED_ORDER if {*search.times} == {"ended"} and not names else None
    if status in NEWEST_FIRST and names <= FILTERED:
        return ("-pk",)
    if (
        names == {"waiting"}
        or (status == Status.RUNNING and names <= FILTERED)
        or (status == Status.QUEUED and names <= FILTERED - {"task"})
    ):
        return ORDERS.get(search.texts.get("waiting", status))
    return None
