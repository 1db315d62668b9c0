"""Release: continue the line of a target. Each verb that may free a target settles the target in the same transaction."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from jobqueue import db
from jobqueue.core import states
from jobqueue.core.targets import Target, in_lock_order
from jobqueue.db import targets as targets_sql
from jobqueue.lifecycle import aside, wakeup
from jobqueue.models import Job

BATCH = 500


def lock(targets: Collection[Target]) -> None:
    """Take the locks of targets until the end of the transaction, and wait for them. Call it first in a transaction, before any row."""
    if targets:
        Job.objects.database.wait_for_locks(in_lock_order(targets))


def try_lock(targets: Collection[Target]) -> set[Target]:
    """Take the locks of targets that are free until the end of the transaction; return the targets that are locked now."""
    if not targets:
        return set()
    keys = Job.objects.database.try_locks(in_lock_order(targets))
    return {target for target in targets if target.key in keys}


def settle(targets: Collection[Target]) -> int:
    """Release the next job of each target that is free; return how many jobs were released.

    The caller holds the locks of the targets. This is a separate statement after the locks were taken, so it sees
    the writes of the previous holders of the locks.
    """
    if not targets:
        return 0
    states.check(states.PENDING_TARGET, states.QUEUED)
    released = targets_sql.release(Job.objects.database, targets)
    for target in released:
        wakeup.work(target.queue, target.tenant)
    return len(released)


def release_heads(heads: Mapping[int, Target]) -> set[Target]:
    """Release parked jobs, the heads of free targets; return the targets whose heads other transactions have locked.

    The caller holds the locks of the targets.
    """
    states.check(states.PENDING_TARGET, states.QUEUED)
    released = targets_sql.release_heads(Job.objects.database, [*heads])
    for one in released:
        wakeup.work(one.queue, one.tenant)
    return {*heads.values()} - {heads[one.id] for one in released}


def settle_safely(targets: Collection[Target]) -> int:
    """Do the same as `settle`, but set the next job aside, or leave it unchanged, if the database refuses to change its row.

    The transaction of the caller stays usable. This takes one more statement than `settle`, so the end of a run
    calls `settle`, and this function only if the database has refused that.
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
        aside.end_pending(job_id, "it cannot be released although its target is free", error)


def release_parked_targets(limit: int | None = None, batch: int = BATCH) -> int:
    """Release jobs that are parked behind a free target, as raw SQL can leave them; return how many.

    A target is free if no job holds or blocks it. Check up to `limit` targets (None: all), `batch` of them at a time.
    This is safe at any time and from any process; a worker calls it every 5 s.
    """
    database = Job.objects.database
    released, seen, after = 0, 0, Target("", "")
    while limit is None or seen < limit:
        targets, next_after = targets_sql.parked_behind_free(database, after, batch)
        if targets:
            with database.atomic():
                # If another transaction holds the lock of a target, that transaction settles the target.
                released += settle_safely(try_lock(targets))
        if next_after is None:
            break
        seen, after = seen + batch, next_after
    return released
