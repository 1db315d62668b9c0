"""Delete ended jobs and their children, one batch per transaction.

Only rows are locked: a job in ERROR that blocks its target is not deleted, so no lock of a target is needed.
Nothing here waits for a lock: a job that is locked, or that has a locked child, is left for later. Each row is
checked after it is locked: a job that was resumed meanwhile stays.

If the database rejects a batch, or it takes too long, its halves are tried, down to the row that causes the error.
That row is set aside with the reason in the log, and the rest is deleted. Children (rows of models with a CASCADE
foreign key to the job) are deleted with the job. The children of a job that has very many are deleted first, in
batches of their own.

A hook can take any time. After half a second, or at the end of the run's time, the jobs that were reached are
deleted. The next transaction handles the rest.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import models

from jobqueue import conf, db
from jobqueue.core import repeats
from jobqueue.core.forks import guarded
from jobqueue.db import EndedJob, ended_jobs
from jobqueue.exceptions import LeadershipLost, is_for_the_process
from jobqueue.lifecycle.aside import reason_of
from jobqueue.models import Job, JobEvent

BATCH = 500
MAX_CHILDREN = 10_000  # deleted together with their jobs
SLOW_SECONDS, QUICK_SECONDS = 0.5, 0.1
MAX_LOGGED = 10  # reasons in each run

Hook = Callable[[Job], Any]
logger = logging.getLogger("jobqueue")


class TooManyChildrenError(Exception):
    """The error for a batch of jobs with more children than one transaction deletes."""


@dataclass(slots=True)
class BatchResult:
    """The results for jobs: those that were done, those that were locked, and the number of those that were set aside.

    `unreached` are the last jobs of a batch, for which there was no time: they are unchanged. `events` were deleted
    with their jobs.
    """

    done: list[EndedJob] = field(default_factory=list)
    later: list[EndedJob] = field(default_factory=list)
    set_aside: int = 0
    unfinished: bool = False
    unreached: Sequence[EndedJob] = ()
    events: int = 0

    def add(self, other: BatchResult) -> None:
        """Add the results for other jobs, without those that were not reached."""
        self.done += other.done
        self.later += other.later
        self.set_aside += other.set_aside
        self.events += other.events
        self.unfinished = self.unfinished or other.unfinished


@dataclass(slots=True)
class Pace:
    """The size of batches, adapted to the speed of the database, and the time limit of a run."""

    size: int = BATCH
    until: float = 0.0
    logged: int = 0

    def begin(self, budget_seconds: float) -> None:
        """Begin a run with a time limit in seconds."""
        self.until = time.monotonic() + budget_seconds
        self.logged = 0

    @property
    def over(self) -> bool:
        """Whether the time of the run is up."""
        return time.monotonic() >= self.until

    def took(self, seconds: float) -> None:
        """Make batches smaller after a slow one, and gradually larger after quick ones."""
        if seconds > SLOW_SECONDS:
            self.halve()
        elif seconds < QUICK_SECONDS:
            self.size = min(self.size + self.size // 8 + 1, BATCH)

    def halve(self) -> None:
        """Halve the size of batches."""
        self.size = max(self.size // 2, 1)

    def log_kept(self, text: str, *values: Any) -> None:
        """Log why a job is kept, for the first few of a run."""
        self.logged += 1
        if self.logged <= MAX_LOGGED:
            logger.warning(text, *values)
        elif self.logged == MAX_LOGGED + 1:
            logger.warning("Retention keeps more jobs for similar reasons; its next run lists them.")


def in_parts(batch: Sequence[EndedJob], act: Callable[[Sequence[EndedJob]], BatchResult], pace: Pace) -> BatchResult:
    """Act on a batch in one transaction; if that fails, act on its halves, until the job that causes the error is alone."""
    began, inside = time.monotonic(), False
    try:
        with Job.objects.database.atomic():
            inside = True
            done = act(batch)
    # includes SystemExit and the like, of a receiver for a project's own models that are deleted with the job
    except BaseException as error:
        if is_for_the_process(error):
            raise
        given_up, locked = db.was_given_up(error), db.is_lock_refusal(error)
        if inside and db.is_outage(error):
            pace.halve()  # the connection may have been cut because it took too long
        if not inside or db.is_outage(error) or isinstance(error, LeadershipLost):
            raise
        if given_up and not locked:
            pace.halve()
        if len(batch) > 1:
            return _in_halves(batch, act, pace)
        if isinstance(error, TooManyChildrenError):
            return _thin_out(batch[0], pace)
        if locked:
            return BatchResult(later=[*batch])
        pace.log_kept("Retention keeps job %s (%s): %s", batch[0].id, batch[0].task, reason_of(error))
        return BatchResult(set_aside=1)
    pace.took(time.monotonic() - began)
    return done


def _in_halves(batch: Sequence[EndedJob], act: Callable[[Sequence[EndedJob]], BatchResult], pace: Pace) -> BatchResult:
    middle = len(batch) // 2
    done, second = in_parts(batch[:middle], act, pace), batch[middle:]
    if done.unreached:  # the time is up
        done.unreached = [*done.unreached, *second]
        return done
    second_result = in_parts(second, act, pace)
    done.add(second_result)
    done.unreached = second_result.unreached
    return done


def erase(batch: Sequence[EndedJob], age: float, hook: Hook | None, pace: Pace) -> BatchResult:
    """Delete the jobs that are unchanged and ended `age` seconds ago; the hook is called with each before its deletion."""
    return in_parts(batch, lambda part: _erase(part, age, hook, pace), pace)


def _erase(batch: Sequence[EndedJob], age: float, hook: Hook | None, pace: Pace) -> BatchResult:
    # No lock of a target is needed: a job that has ended for good holds none, and a job in ERROR that does is not
    # deleted.
    ids = [job.id for job in batch]
    locked = ended_jobs.lock_ended(Job.objects.database, ids, age, for_deletion=True)
    result = BatchResult(later=_still_there(batch, {*ids} - {*locked}, age))
    unchanged = [job for job in batch if locked.get(job.id) == job.status]
    with Job.objects.database.prefer_index():
        protected = _protected(unchanged, pace)
        _lock_children([job.id for job in unchanged if job.id not in protected])
    wanted = [job for job in unchanged if job.id not in protected]
    result.done = call(hook, wanted, "ON_DELETE", pace)
    if len(result.done) < len(wanted):
        result.unreached = onward(batch, wanted[len(result.done)])
    unreached = {job.id for job in result.unreached}
    result.set_aside += len(protected - unreached)
    result.later = [job for job in result.later if job.id not in unreached]
    if result.done:
        with Job.objects.database.prefer_index():
            _, deleted = Job.objects.current.filter(pk__in=[job.id for job in result.done]).only("pk").erase()
            result.events = deleted.get(JobEvent._meta.label, 0)
    return result


def _still_there(batch: Sequence[EndedJob], ids: set[int], age: float) -> list[EndedJob]:
    """Return which of the jobs could not be locked because another transaction has locked them, not because they have changed."""
    if not ids:
        return []
    statuses = dict(Job.objects.current.filter(pk__in=ids).values_list("pk", "status"))
    return [job for job in batch if statuses.get(job.id) == job.status]


def onward(batch: Sequence[EndedJob], first: EndedJob) -> Sequence[EndedJob]:
    """Return one job of a batch, and all after it."""
    return batch[batch.index(first) :]


def call(
    hook: Hook | None, jobs: Sequence[EndedJob], name: str, pace: Pace, prepare: Callable[[Sequence[EndedJob]], object] = lambda jobs: None
) -> list[EndedJob]:
    """Call a hook with each job, read with all columns, one at a time, until the time is up; return those that were reached, at least one.

    `prepare` is called with each job before. Each call to the hook has a savepoint: an exception, even SystemExit,
    rolls back only that call.
    """
    if hook is None:
        prepare(jobs)
        return [*jobs]
    began, reached = time.monotonic(), list[EndedJob]()
    for ended in jobs:
        if reached and (pace.over or time.monotonic() - began >= SLOW_SECONDS):
            break
        reached.append(ended)
        prepare([ended])
        job = Job.objects.current.get(pk=ended.id)
        try:
            with conf.tenant_context(ended.tenant), Job.objects.database.atomic():
                guarded(hook)(job)  # a child process that it forks must not write in this transaction
        except LeadershipLost:
            raise
        except BaseException as error:
            if db.is_outage(error) or is_for_the_process(error):
                raise
            text = "%s raised an error for job %s (%s); retention continues."
            repeats.log(logging.ERROR, text, name, ended.id, ended.task, kind=name, exc_info=True)
    return reached


# Children


def _relations() -> Iterator[Any]:
    """Yield the foreign keys to the job, of all models, but the one by which a model inherits from it."""
    for relation in Job._meta.get_fields(include_hidden=True):
        if isinstance(relation, models.ManyToOneRel) and not relation.parent_link:
            yield relation


def _referring(relation: Any, ids: Sequence[int]) -> Any:
    children = relation.related_model._base_manager.using(Job.objects.database.alias)
    return children.filter(**{f"{relation.field.name}__in": ids}).order_by()


def _protected(batch: Sequence[EndedJob], pace: Pace) -> set[int]:
    """Return which of the jobs must stay because rows with PROTECT refer to them; one query per relation for all jobs."""
    protected: set[int] = set()
    for relation in _relations():
        if relation.on_delete is models.PROTECT and batch:
            rows = _referring(relation, [job.id for job in batch])
            referred = set(rows.values_list(relation.field.attname, flat=True).distinct())
            if referred - protected:
                first = ", ".join(map(str, sorted(referred)[:5]))
                label = relation.related_model._meta.label
                pace.log_kept("Retention keeps %d jobs that rows of %s refer to with PROTECT: %s…", len(referred), label, first)
            protected |= referred
    return protected


def _lock_children(ids: Sequence[int]) -> None:
    """Lock the children that are deleted with the jobs; raise immediately if one is locked, or if they are too many."""
    total = 0
    for relation in _relations():
        if relation.on_delete is models.CASCADE and ids:
            rows = _referring(relation, ids)
            # writers of jobqueue's children have locked the job
            if relation.related_model._meta.app_label != Job._meta.app_label:
                rows = rows.select_for_update(nowait=True, of=("self",))
            total += len(rows.values_list("pk", flat=True)[: MAX_CHILDREN + 1])
            if total > MAX_CHILDREN:
                raise TooManyChildrenError(f"more than {MAX_CHILDREN} rows refer to it")


def _thin_out(job: EndedJob, pace: Pace) -> BatchResult:
    """Delete children of a job that has very many, in transactions of their own, until the time of the run is up.

    A job that is resumed at that moment has lost its oldest children.
    """
    size = MAX_CHILDREN // 2
    while True:
        try:
            deleted = _delete_children(job, size)
        except Exception as error:
            if not db.was_given_up(error) or size == 1:
                raise
            size //= 2
            continue
        if deleted < size or pace.over:
            return BatchResult(later=[job], unfinished=deleted > 0)


def _delete_children(job: EndedJob, size: int) -> int:
    deleted = 0
    with Job.objects.database.atomic():
        if ended_jobs.lock_ended(Job.objects.database, [job.id], 0.0, for_deletion=True).get(job.id) != job.status:
            return 0
        for relation in _relations():
            if relation.on_delete is models.CASCADE and deleted < size:
                children = _referring(relation, [job.id]).select_for_update(skip_locked=True, of=("self",))
                with Job.objects.database.prefer_index():
                    keys = list(children.values_list("pk", flat=True)[: size - deleted])
                    relation.related_model._base_manager.using(Job.objects.database.alias).filter(pk__in=keys).delete()
                deleted += len(keys)
    return deleted
