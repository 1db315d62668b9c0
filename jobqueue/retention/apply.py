"""Retention: mark ended jobs as stale after a time, and delete them after another.

For each age in the rules, a walk reads the index of ended jobs, from the oldest job to the one that has just
reached that age. Each step reads a bounded number of jobs and continues after the last one. Jobs to which another
rule applies are skipped, once. So a job that is kept is read once for each age, not again and again.

After a walk has reached its end, the next run continues from a little earlier: a run that ended then may have been
written late. From time to time the walk starts again from the oldest job, for jobs that were set aside or missed;
if it finds nothing, the pause before the next start doubles.

Jobs that wait, run or are paused have not ended, so no walk reads them. A job that is resumed between the step and
its deletion is kept by the guard of the deletion (see ``retention/erase.py``).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from django.dispatch import Signal

from jobqueue import conf, db, signals
from jobqueue.core import event_names as names
from jobqueue.core import repeats, states
from jobqueue.core.retention_rules import Rules
from jobqueue.db import EndedJob, Now, hygiene
from jobqueue.db import ended_jobs as ended_jobs_sql
from jobqueue.db.ended_jobs import Key
from jobqueue.events.record import record_of
from jobqueue.exceptions import is_for_the_process
from jobqueue.models import Job
from jobqueue.retention.erase import BatchResult, Hook, Pace, call, erase, in_parts, onward

BUDGET_SECONDS = 1.0
LATE_SECONDS = 120.0
PATIENCE_SECONDS = 10.0  # for slow receivers: retention can wait
ANEW_SECONDS, MAX_ANEW_SECONDS = 3600.0, 24 * 3600.0
MAX_LATER = 1000
MAX_READ = 500


@dataclass(frozen=True, slots=True)
class Swept:
    """The result of one run; `more` if it ended with work left. `events` were deleted with the jobs."""

    deleted: int = 0
    stale: int = 0
    set_aside: int = 0
    more: bool = False
    events: int = 0


class AgeSweep:
    """One action on the jobs that have reached one age, from the oldest."""

    def __init__(self, rules: Rules, age: float, pace: Pace, hook: Hook | None) -> None:
        """Create it; the first run starts from the oldest job."""
        self.rules, self.age, self.pace, self.hook = rules, age, pace, hook
        self._key: Key | None = None
        self._read_size = MAX_READ
        self._ended_at: float | None = None  # the time of its end, on this process's clock
        self._began_anew = time.monotonic()
        self._anew_seconds = ANEW_SECONDS
        self._found = 0
        self._later: list[EndedJob] = []

    def run(self) -> BatchResult:
        """Act on jobs until none is left, or the time is up."""
        result = BatchResult()
        unreached = self._later[self._act_on(self._later, result) :]
        self._start()
        over = False  # at least one step in any case: otherwise runs could make no progress forever
        while not over:
            jobs, complete = self._read_next()
            wanted = [job for job in jobs if self.wants(job)]
            acted = self._act_on(wanted, result)
            if acted < len(wanted):  # the next run begins after those that were done
                jobs = [job for job in jobs if job.key < wanted[acted].key]
                complete, over = False, True
            if jobs:
                self._key = jobs[-1].key
            if complete:
                self._ended_at = time.monotonic()
                break
            over = over or self.pace.over
        self._later = [*unreached, *result.later][:MAX_LATER]
        self._found += len(result.done)
        result.unfinished = result.unfinished or over or bool(unreached)
        return result

    def _act_on(self, wanted: Sequence[EndedJob], result: BatchResult) -> int:
        """Act on batches of the jobs, at least one, until the time is up; return the number of jobs that were handled."""
        acted = 0
        while acted < len(wanted) and not (acted and self.pace.over):
            batch = wanted[acted : acted + self.pace.size]
            done = self.act(batch)
            result.add(done)
            acted += len(batch) - len(done.unreached)
        return acted

    def wants(self, job: EndedJob) -> bool:
        """Return whether the walk acts on a job."""
        return self.rules.seconds(job.queue, job.status) == self.age

    def act(self, batch: Sequence[EndedJob]) -> BatchResult:
        """Act on a batch."""
        raise NotImplementedError

    def _start(self) -> None:
        """Start again from the oldest job if the walk has ended, and its last start is long enough ago."""
        now = time.monotonic()
        if self._ended_at is not None and now - self._began_anew >= self._anew_seconds:
            self._anew_seconds = ANEW_SECONDS if self._found else min(2 * self._anew_seconds, MAX_ANEW_SECONDS)
            self._began_anew, self._found = now, 0
            self._key = self._ended_at = None

    def _read_next(self) -> tuple[list[EndedJob], bool]:
        """Return the next jobs, as many as the database returns in time, and whether these are the last."""
        key, since = self._key, None
        if self._ended_at is not None:
            key, since = None, self.age + LATE_SECONDS + time.monotonic() - self._ended_at
            self._ended_at = None
        while True:
            limit = self._read_size
            try:
                jobs = ended_jobs_sql.ended_before(Job.objects.database, self.age, key, limit, since)
            except Exception as error:
                if not db.was_given_up(error) or limit == 1:
                    raise
                self._read_size = limit // 2
                continue
            self._read_size = min(2 * limit, MAX_READ)
            return jobs, len(jobs) < limit


class Deletion(AgeSweep):
    """The walk that deletes jobs."""

    def wants(self, job: EndedJob) -> bool:
        """Return whether the walk acts on a job that may be deleted."""
        return super().wants(job) and may_go(job)

    def act(self, batch: Sequence[EndedJob]) -> BatchResult:
        """Delete a batch, and send signals for it."""
        done = erase(batch, self.age, self.hook, self.pace)
        _announce(signals.job_deleted, done.done)
        return done


class Marking(AgeSweep):
    """The walk that marks jobs as stale."""

    def wants(self, job: EndedJob) -> bool:
        """Return whether the walk acts on a job that is not marked yet."""
        return not job.stale and super().wants(job)

    def act(self, batch: Sequence[EndedJob]) -> BatchResult:
        """Mark a batch, and send signals for it."""
        done = in_parts(batch, self._mark, self.pace)
        _announce(signals.job_stale, done.done)
        return done

    def _mark(self, batch: Sequence[EndedJob]) -> BatchResult:
        locked = ended_jobs_sql.lock_ended(Job.objects.database, [job.id for job in batch], self.age, for_deletion=False)
        to_mark = [job for job in batch if locked.get(job.id) == job.status]
        reached = call(self.hook, to_mark, "ON_STALE", self.pace, _set_stale)
        unreached = onward(batch, to_mark[len(reached)]) if len(reached) < len(to_mark) else ()
        unreached_ids = {job.id for job in unreached}
        return BatchResult(reached, [job for job in batch if job.id not in locked and job.id not in unreached_ids], unreached=unreached)


def _set_stale(jobs: Sequence[EndedJob]) -> None:
    ids = [job.id for job in jobs]
    Job.objects.current.filter(pk__in=ids, stale_at__isnull=True).update(stale_at=Now())
    record_of(ids, names.STALE)


def may_go(job: EndedJob) -> bool:
    """Return whether a job may be deleted: one in ERROR with a target blocks its line until an operator decides."""
    return not (job.target and job.status == states.Status.ERROR)


@dataclass(slots=True)
class Sweep:
    """Retention by the rules, in runs of a bounded time; it stores its position between runs."""

    stale: Rules
    delete: Rules
    on_stale: Hook | None = None
    on_delete: Hook | None = None
    _walks: list[AgeSweep] = field(default_factory=list)
    _pace: Pace = field(default_factory=Pace)

    def __post_init__(self) -> None:
        """Create a walk for each age in the rules; deletions come first, so that no job is marked just before its deletion."""
        self._walks = [Deletion(self.delete, age, self._pace, self.on_delete) for age in self.delete.ages()]
        self._walks += [Marking(self.stale, age, self._pace, self.on_stale) for age in self.stale.ages()]

    def run(self, budget_seconds: float = BUDGET_SECONDS) -> Swept:
        """Do what is due, for about `budget_seconds`."""
        done: dict[type[AgeSweep], int] = {Deletion: 0, Marking: 0}
        set_aside, more, events = 0, False, 0
        for walk in self._walks:
            # Each walk has its share of the time, so that a walk with much work does not delay the rest.
            self._pace.begin(budget_seconds / len(self._walks))
            result = walk.run()
            done[type(walk)] += len(result.done)
            set_aside, events = set_aside + result.set_aside, events + result.events
            more = more or result.unfinished
        return Swept(done[Deletion], done[Marking], set_aside, more, events)


def by_settings() -> Sweep:
    """Return a sweep by the project's settings."""
    return Sweep(*conf.retention(), *conf.retention_hooks())


def due(rules: Rules) -> Iterator[EndedJob]:
    """Yield the jobs that have reached the age that rules set for them, without changing any."""
    for age in rules.ages():
        key: Key | None = None
        while jobs := ended_jobs_sql.ended_before(Job.objects.database, age, key, MAX_READ):
            yield from (job for job in jobs if rules.seconds(job.queue, job.status) == age)
            key = jobs[-1].key


def _announce(signal: Signal, jobs: Sequence[EndedJob]) -> None:
    """Send a signal for each of the jobs, if a receiver is connected, inside its tenant's context."""
    if not jobs or not signals.has_receivers(signal):
        return
    signals.deliver(_send, [(signal, job) for job in jobs], patience=PATIENCE_SECONDS)


def _send(item: tuple[Signal, EndedJob], _: None) -> None:
    signal, job = item
    values = {"job_id": job.id, "task": job.task, "queue": job.queue, "tenant": job.tenant, "target": job.target}
    try:
        with conf.tenant_context(job.tenant), hygiene.leaving_no_transaction("A receiver of job_stale or job_deleted"):
            signal.send_robust(Sweep, **values, status=job.status, finished_at=Job.objects.database.moment(job.ended))
    except BaseException as error:  # the job is done; an error for one job must not stop the signals of the rest
        if is_for_the_process(error):
            raise
        repeats.log(logging.WARNING, "Job %s: a receiver of job_stale or job_deleted failed: %s", job.id, error)
