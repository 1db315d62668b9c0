"""Wait for children: a job resumes when all jobs that it waits for have ended, with any status, or are deleted.

A job begins to wait under one global lock, which it takes before any row. Two jobs can therefore not begin to wait
for each other at the same time: the second sees the rows of the first. Rows of `JobDependency` name the children. The
end of a child does not update them, because the statement that ends jobs is hot. Instead, `Parents` polls. It reads
one open child of each waiting job, and reads the other children only if that one has ended. The cost of a poll does
not grow with the number of children that still run.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from django.db.models import OuterRef, QuerySet, Subquery

from jobqueue.core import states
from jobqueue.core.targets import Target
from jobqueue.db import Lease
from jobqueue.db.pipelines import MAX_SEEN, WAITS_KEY, holders_before, insert_dependencies, targets_kept, targets_wanted, waits_for
from jobqueue.exceptions import ChildrenRefused
from jobqueue.lifecycle import aside, wakeup
from jobqueue.lifecycle.batches import Batch, Batches
from jobqueue.lifecycle.guard import guarded
from jobqueue.models import Job, JobDependency

PARENTS = 200  # jobs that one poll reads
MARKED = 5000  # children that one transaction marks as ended
MAX_CHILDREN = 100_000
MAX_RETURNED = 1000
HOLDERS = 200  # holders of targets to search for a circle, through the children that wait behind them
ENDED_SQL = "j.status IN ('SUCCESS', 'ERROR', 'CANCELED')"


class Child(NamedTuple):
    """A child and its end. A deleted child has the status ""."""

    job_id: int
    status: str
    result: Any
    message: str


def _rows(**where: Any) -> QuerySet[JobDependency]:
    return JobDependency.objects.using(Job.objects.database.alias).filter(**where)


def wait(lease: Lease, ids: Sequence[int]) -> None:
    """Make a running job wait for other jobs after the end of its run. Raise `ChildrenRefused` if the wait could never end."""
    database = Job.objects.database
    if len(ids) > MAX_CHILDREN:
        raise ChildrenRefused(f"A job can wait for at most {MAX_CHILDREN:,} jobs at once, not for {len(ids):,}. Wait for them in phases.")
    with database.atomic():
        database.wait_for_locks([WAITS_KEY])
        with guarded(lease) as job:
            _check(job, ids)
            forget_unended(job)
            insert_dependencies(database, JobDependency._meta.db_table, job.pk, ids, ENDED_SQL)
            itself, seen = waits_for(database, JobDependency._meta.db_table, job.pk)
            if itself:
                raise ChildrenRefused(
                    f"Job {job.pk} cannot wait for {_named(ids)}: {'it' if len(ids) == 1 else 'one of them'} waits for job {job.pk}, "
                    "directly or through other jobs. Remove that job from the children."
                )
            _check_targets(job)
            if seen >= MAX_SEEN:
                raise ChildrenRefused(
                    f"The jobs that job {job.pk} would wait for have {seen:,} children in turn. Wait for fewer jobs at once."
                )


def _check(job: Job, ids: Sequence[int]) -> None:
    if job.pk in ids:
        raise ChildrenRefused(f"Job {job.pk} cannot wait for itself: remove its own id from the children.")


def _check_targets(job: Job) -> None:
    """Refuse to wait for a child that needs a target which this job, or a job that waits for it, keeps.

    The child can also wait indirectly: behind the holder of another target, which waits for a child that needs such a
    target, and so on.
    """
    database, table = Job.objects.database, JobDependency._meta.db_table
    keepers = targets_kept(database, table, job.pk)
    waiting = [job.pk] if keepers else []
    for holder in waiting:  # the loop appends to this list
        for target, child in targets_wanted(database, table, holder, ENDED_SQL):
            if target in keepers:
                raise ChildrenRefused(_circle(job.pk, holder, child, target, keepers[target]))
        if len(waiting) < HOLDERS:
            waiting += [new for new in holders_before(database, table, holder, ENDED_SQL, HOLDERS) if new not in waiting]


def _circle(job: int, holder: int, child: int, target: Target, keeper: int) -> str:
    which = "which it keeps" if keeper == job else f"which job {keeper} keeps, and that waits for job {job}"
    if holder == job:
        needs = f"which needs the target {target.name!r}, {which}. Give the child another target, or none."
        return f"Job {job} cannot wait for job {child}, {needs}"
    return (
        f"Job {job} cannot wait for a job in line behind job {holder}: that one waits, in turn, for job {child}, which needs the"
        f" target {target.name!r}, {which.replace('it keeps', f'job {job} keeps')}. Give the children no target, or make "
        f"all jobs take their targets in the same order."
    )


def _named(ids: Sequence[int]) -> str:
    return f"job{'s' if len(ids) > 1 else ''} {', '.join(map(str, ids[:5]))}{', …' if len(ids) > 5 else ''}"


def forget_unended(job: Job) -> None:
    """Delete the dependencies that have not ended, because the job was ended in another way or starts again."""
    _rows(parent=job, ended=False).delete()


def keep_ended(job: Job, *, none_lives: bool = False) -> None:
    """Make a job wait for no child. Keep the dependencies whose children have ended, so that the job can read them.

    A job that was paused can resume before `Parents` has marked all children that have ended.
    """
    rows = _rows(parent=job, ended=False)
    if rows.exists():
        if not none_lives:
            rows.filter(child__status__in=states.LIVE).delete()
        rows.update(ended=True)


def has_live(job: Job) -> bool:
    """Return whether a job waits for a child that has not ended."""
    return _rows(parent=job, ended=False, child__status__in=states.LIVE).exists()


def ended(job_id: int, after: int = 0, limit: int = MAX_RETURNED) -> list[Child]:
    """Return the children of a job with their ends, in the order of their ids, beginning after the id `after`."""
    ids = list(_rows(parent=job_id, child_id__gt=after).order_by("child_id").values_list("child_id", flat=True)[:limit])
    rows = Job.objects.current.filter(pk__in=[one for one in ids if isinstance(one, int)]).values_list("pk", "status", "result", "message")
    children = {row[0]: Child(*row) for row in rows}
    return [children.get(number) or Child(number, "", None, "") for number in ids]


# The duty that polls all waiting jobs


def resume_parents() -> int:
    """Move all jobs whose children have ended to QUEUED; return how many. This is safe at any time and from any process."""
    parents, moved = Parents(), 0
    while (batch := parents.run()) is not None:
        moved += batch.moved
    return moved


class Parents:
    """A poll of the jobs that wait for children, `PARENTS` jobs at a time."""

    def __init__(self) -> None:
        """Start at the lowest id."""
        self._batches = Batches("Resuming jobs whose children have ended", PARENTS)
        self._after = 0
        self.busy = False
        """Whether more jobs can be moved at once."""
        self.any = False
        """Whether a waiting job was found."""

    def run(self) -> Batch | None:
        """Poll the next jobs; return how many were moved, or None after the last job."""
        ready, last = self._ready()
        aside = set(self._batches.set_aside)
        ready = [job_id for job_id in ready if job_id not in aside]
        batch = Batch()
        self.busy = False
        for job_id in ready:
            part = self._batches.run(partial(self._advance_one, job_id), partial(_alone, job_id), self._advance, _end)
            batch = Batch(batch.moved + part.moved, batch.set_aside + part.set_aside)
        if self.busy:
            return batch
        self._after = last
        return batch if last or batch.moved else None

    def _ready(self) -> tuple[list[int], int]:
        """Return those of the next waiting jobs whose first open child has ended, and the id to continue after (0: from the start)."""
        first = _rows(parent=OuterRef("pk"), ended=False).order_by("child_id").values("child_id")[:1]
        waiting = Job.objects.current.filter(status=states.Status.PENDING, waiting_for=states.WaitingFor.CHILDREN, pk__gt=self._after)
        pairs = list(waiting.order_by("pk").annotate(first=Subquery(first)).values_list("pk", "first")[:PARENTS])
        self.any = bool(pairs) or self._after > 0
        firsts = [child for _, child in pairs if isinstance(child, int)]  # SQLite stores any value in any column
        live = set(Job.objects.current.filter(pk__in=firsts).exclude(status__in=states.ENDED).values_list("pk", flat=True))
        return [job_id for job_id, child in pairs if child not in live], pairs[-1][0] if len(pairs) == PARENTS else 0

    def _advance_one(self, job_id: int, size: int) -> int:
        return self._advance(job_id)

    def _advance(self, job_id: int) -> int:
        """Mark the children of a job that have ended, and move the job to QUEUED if no child is left; return the number of moved jobs."""
        with Job.objects.database.atomic():
            waiting = Job.objects.current.unlocked().filter(pk=job_id, status=states.Status.PENDING, waiting_for=states.WaitingFor.CHILDREN)
            job = waiting.only("pk", "status", "waiting_for", "lease_token", "queue", "tenant").first()
            if job is None:
                return 0
            rows = list(_rows(parent=job, ended=False).order_by("child_id").values_list("pk", "child_id")[: MARKED + 1])
            children = [child for _, child in rows if isinstance(child, int)]
            alive = Job.objects.current.filter(pk__in=children).exclude(status__in=states.ENDED)
            live = set(alive.values_list("pk", flat=True))
            done = [pk for pk, child in rows[:MARKED] if child not in live]
            _rows(pk__in=done).update(ended=True)
            if live or len(rows) > MARKED:
                self.busy = self.busy or (len(rows) > MARKED and not live)
                return 0
            moved = Job.objects.move(job, states.QUEUED)
            wakeup.work(job.queue, job.tenant)
        return moved


def _end(job_id: int, error: Exception) -> bool:
    return aside.end_pending(job_id, "it cannot continue after its children", error)


def _alone(job_id: int, size: int) -> list[int]:
    return [job_id]
