"""Release: let the line behind a target move on. Every verb that may free a target settles it, in its own transaction."""

from __future__ import annotations

from collections.abc import Collection

from jobqueue import db
from jobqueue.core import states
from jobqueue.core.targets import Target, in_lock_order
from jobqueue.lifecycle import aside, wakeup
from jobqueue.models import Job

BATCH = 500


def lock(targets: Collection[Target]) -> None:
    """Take the locks of targets until the end of the transaction, waiting; the first thing a transaction does, before any row."""
    if targets:
        Job.objects.database.wait_for_locks(in_lock_order(targets))


def try_lock(targets: Collection[Target]) -> set[Target]:
    """Take the locks of targets that are free until the end of the transaction; return the targets that are locked now."""
    if not targets:
        return set()
    keys = Job.objects.database.try_locks(in_lock_order(targets))
    return {target for target in targets if target.key in keys}


def settle(targets: Collection[Target]) -> int:
    """Let the next of each target be taken where the target is free; return how many were let go.

    The caller holds the targets' locks, and this is a statement of its own: it sees what the holders of the locks before did.
    """
    if not targets:
        return 0
    states.check(states.PENDING_TARGET, states.QUEUED)
    released = Job.objects.database.release(targets)
    for one in released:
        wakeup.work(one.queue, one.tenant)
    return len(released)


def settle_safely(targets: Collection[Target]) -> int:
    """Do the same though the row of a next job may refuse it: then that job is set aside, or left as it is, and the caller goes on.

    Called where one statement more costs nothing; the end of a run is written by `settle`, and by this one if that is refused.
    """
    if not targets:
        return 0
    try:
        with Job.objects.database.atomic():  # a savepoint; the locks were taken before it
            return settle(targets)
    except Exception as error:
        if not db.is_refusal(error):
            raise
        if len(targets) > 1:
            return sum(settle_safely([target]) for target in targets)
        _set_next_aside(next(iter(targets)), error)
        return 0


def _set_next_aside(target: Target, error: Exception) -> None:
    parked = Job.objects.current.filter(
        tenant=target.tenant, target=target.name, status=states.Status.PENDING, waiting_for=states.WaitingFor.TARGET
    )
    job_id = parked.order_by("-holds_target", "claim_rank", "pk").values_list("pk", flat=True).first()
    if job_id is not None:
        aside.end_pending(job_id, "it cannot be let go though its target is free", error)


def release_parked_targets(limit: int | None = None, batch: int = BATCH) -> int:
    """Repair what raw SQL left behind: jobs parked behind a target that nobody holds or blocks; return how many were let go.

    Looks at up to `limit` targets (None: all), `batch` of them at a time. Safe to call at any time from anywhere; a worker calls it
    every 5 s.
    """
    database = Job.objects.database
    released, seen, after = 0, 0, Target("", "")
    while limit is None or seen < limit:
        found, next_after = database.parked_behind_free(after, batch)
        if found:
            with database.atomic():
                # Whoever has a lock just now settles the target itself.
                released += settle_safely(try_lock(found))
        if next_after is None:
            break
        seen, after = seen + batch, next_after
    return released
