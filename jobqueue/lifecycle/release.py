"""Release: let the line behind a target move on. Every verb that may free a target settles it, in its own transaction."""

from __future__ import annotations

from collections.abc import Collection

from jobqueue import states
from jobqueue.lifecycle import wakeup
from jobqueue.line import Target, in_lock_order
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
                released += settle(try_lock(found))
        if next_after is None:
            break
        seen, after = seen + batch, next_after
    return released
