"""A state machine that drives the real verbs on the real database, and checks after each of them what may have changed.

Two connections take turns at the verbs. On PostgreSQL a third connection keeps a row locked, or an enqueue uncommitted,
while the two continue. The database's clock cannot be moved, so time passes by moving the times in the rows back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta

from django.db import connection, connections, transaction
from django.db.models import F
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from jobqueue import Verdict
from jobqueue.core import states
from jobqueue.core.answers import Answer
from jobqueue.db import Lease, Mark, Now
from jobqueue.db import leases as leases_sql
from jobqueue.lifecycle import control
from jobqueue.lifecycle.children import resume_parents
from jobqueue.lifecycle.enqueue import JobSpec, enqueue
from jobqueue.lifecycle.expire import Expired, expire_owner, expire_stale_running_jobs
from jobqueue.lifecycle.finish import finish
from jobqueue.lifecycle.outcome import Failure, Kind, Outcome
from jobqueue.models import Job
from tests.claiming import claim
from tests.events.story import all_told, judge
from tests.lifecycle.rows import LIKELY, Row, RowsMachine, repeated_tries

WORKERS = ("worker-1", "worker-2")
QUEUES = ("a", "b")
MAX_JOBS = 4
MAX_CRASHES = 3
LEASE_SECONDS = 30.0
BACK = {
    Kind.SUCCESS: states.SUCCESS,
    Kind.ERROR: states.ERROR,
    Kind.RETRY: states.PENDING_TIME,
    Kind.INTERRUPTED: states.QUEUED,
    Kind.STOPPED: states.PAUSED,
    Kind.HANDED_BACK: states.QUEUED,
    Kind.UNKNOWN_TASK: states.PENDING_TIME,
    Kind.SLEEP: states.PENDING_TIME,
    Kind.WAIT: states.PENDING_CHILDREN,
    Kind.EXPIRED: states.CANCELED,
}
GIVEN_BACK = (Kind.INTERRUPTED, Kind.HANDED_BACK, Kind.UNKNOWN_TASK, Kind.SLEEP, Kind.WAIT, Kind.EXPIRED)


PICK = st.integers(0, 11)
SIDE = st.integers(0, 1)


class Lifecycle(RowsMachine):
    """Enqueue, claim, renew, finish, pause, cancel, resume, run now, expire, promote, and time."""

    def teardown(self) -> None:
        """Run all open jobs to their end: no job is lost."""
        try:
            self.close_open_transaction()
            self.drain()
        finally:
            connections["default"] = self.parties[0]

    @invariant()
    def events_tell_the_same_story_as_the_row(self) -> None:
        told = all_told()
        assert told.keys() == self.rows.keys(), "a job without events, or events without a job"
        for row in self.rows.values():
            claims = row.token - self.first_tokens[row.id]
            judge(told[row.id], status=row.status, begun=row.begun, claims=claims, idle_stops=self.idle_stops[row.id])

    # Verbs

    @initialize(priorities=st.lists(st.integers(-1, 1), min_size=1, max_size=3))
    def begin_with_some_jobs(self, priorities: list[int]) -> None:
        for priority in priorities:
            self.enqueue(0, QUEUES[priority % 2], priority, 0, "", "hold" if priority > 0 else "requeue")

    @precondition(lambda self: len(self.rows) < MAX_JOBS)
    @rule(
        side=SIDE, queue=st.sampled_from(QUEUES), priority=st.integers(-1, 1), seconds=st.sampled_from([0, 0, 0, 5]),
        key=st.sampled_from(["", "", "k"]), recovery=st.sampled_from(["requeue", "requeue", "hold"]),
    )  # fmt: skip
    def enqueue(self, side: int, queue: str, priority: int, seconds: int, key: str, recovery: str) -> None:
        spec = JobSpec(
            "tests.tasks.add", queue=queue, priority=priority, run_after=timedelta(seconds=seconds), unique_key=key, recovery=recovery
        )
        live = [row.id for row in self.rows.values() if key and row.key == key and row.status in states.LIVE]
        with self.via(side):
            made = enqueue(spec)
        self.moved(changing=[made.job_id] if made.created else [], moves=[(states.NEW, states.PENDING_TIME if seconds else states.QUEUED)])
        assert (made.created, [made.job_id]) == (not live, live or [made.job_id])

    @precondition(lambda self: self.some("QUEUED", "PENDING"))
    @rule(
        side=SIDE, owner=st.sampled_from(WORKERS), queues=st.sampled_from([(), (), ("a",), ("b", "a"), ("b", "c")]),
        limit=st.integers(1, 3), behind=st.integers(0, 7),
    )  # fmt: skip
    def claim(self, side: int, owner: str, queues: tuple[str, ...], limit: int, behind: int) -> None:
        line = sorted((row.rank, row.id) for row in self.rows.values())
        after = line[behind % len(line)] if behind > 4 and line else None
        free = [
            row for row in self.rows.values() if row.status == "QUEUED" and row.id not in self.locked and row.queue in (queues or QUEUES)
        ]
        best = sorted((row.rank, row.id) for row in free if after is None or (row.rank, row.id) > after)[:limit]
        with self.via(side):
            claimed = claim(owner, queues, limit, LEASE_SECONDS, after)
        assert [(job.claim_rank, job.id) for job in claimed] == best
        for old in self.moved(changing=[job.id for job in claimed], moves=[(states.QUEUED, states.RUNNING)]).values():
            self.same_budgets(old, attempt=old.attempt + 1)
            assert (self.rows[old.id].flagged, self.rows[old.id].owner) == (False, owner)
        for job in claimed:
            lease = Lease(job.id, job.lease_token)
            assert lease not in self.given, "no lease is given twice"
            assert lease == self.rows[job.id].lease
            self.given[lease] = owner

    @precondition(lambda self: self.some("QUEUED"))
    @rule(side=SIDE, owner=st.sampled_from(WORKERS))
    def claim_what_is_free(self, side: int, owner: str) -> None:
        self.claim(side, owner, (), MAX_JOBS, 0)

    @precondition(lambda self: self.some("RUNNING"))
    @rule(side=SIDE, owner=st.sampled_from(WORKERS))
    def renew(self, side: int, owner: str) -> None:
        mine = [lease for lease, given_to in self.given.items() if given_to == owner]
        ours = [row for row in self.standing(mine) if row.id not in self.locked]
        with self.via(side):
            found = Job.objects.renew(mine, LEASE_SECONDS)
        assert sorted(found) == sorted((row.id, row.token, row.flagged, row.flag) for row in ours)
        self.moved(changing=[row.id for row in ours], moves=[])

    @precondition(lambda self: self.some("RUNNING"))
    @rule(side=SIDE, owner=st.sampled_from(WORKERS))
    def mark(self, side: int, owner: str) -> None:
        """Write that the runs of a worker have begun."""
        mine = [lease for lease, given_to in self.given.items() if given_to == owner]
        ours = [row for row in self.standing(mine) if row.id not in self.locked]
        with self.via(side):
            written = leases_sql.mark(Job.objects.database, [Mark(*lease, 0.0, None, None, None) for lease in mine]) if mine else []
        assert sorted(written) == sorted(Lease(row.id, row.token) for row in ours)
        self.moved(changing=[row.id for row in ours], moves=[])
        assert all(self.rows[row.id].begun for row in ours)

    @precondition(lambda self: self.given and self.some("RUNNING"))
    @rule(side=SIDE, picks=st.lists(PICK, min_size=1, max_size=3), kinds=st.lists(st.sampled_from(Kind), min_size=3, max_size=3))
    def finish(self, side: int, picks: list[int], kinds: list[Kind]) -> None:
        newest_first = [*self.given][::-1]
        standing = [row.lease for row in self.standing(newest_first) if row.lease is not None] or newest_first
        leases = dict.fromkeys([(standing if pick < LIKELY - 3 else newest_first)[pick % len(standing)] for pick in picks])
        self.write(dict(zip(leases, kinds, strict=False)), side)

    @precondition(lambda self: self.some("RUNNING"))
    @rule(side=SIDE, pick=PICK, kind=st.sampled_from(Kind), asked=st.sampled_from(["", "", "PAUSED", "CANCELED"]), late=st.booleans())
    def one_run_ends(self, side: int, pick: int, kind: Kind, asked: str, late: bool) -> None:
        """End a valid run, with or without a request before it; then write the lost runs of the job and the same end again, too late."""
        running = [row for row in self.rows.values() if row.status == "RUNNING"]
        lease = running[pick % len(running)].lease
        if lease is None:
            return
        if asked and lease.job_id not in self.locked:
            self.ask(self.rows[lease.job_id], asked, side)
        older = [one for one in self.given if late and one.job_id == lease.job_id and one.token < lease.token]
        self.write({lease: kind, **dict.fromkeys(older, kind)}, side)
        if late:
            self.write({lease: kind}, 1 - side)

    def is_put_off(self, lease: Lease, kind: Kind) -> bool:
        """Return whether the end of the run has a delay, as every second handed back run has."""
        second = (lease.token - self.first_tokens[lease.job_id]) % 2 == 0
        return kind in (Kind.RETRY, Kind.SLEEP) or (kind is Kind.HANDED_BACK and second)

    def back(self, lease: Lease, kind: Kind) -> states.Place:
        """Return the place to which the end of a run moves its job if no stop was requested."""
        return states.PENDING_TIME if self.is_put_off(lease, kind) else BACK[kind]

    def write(self, ends: dict[Lease, Kind], side: int = 0) -> None:
        """Finish runs, some of them lost long ago."""
        now = time.monotonic()
        failure = Failure("builtins.ValueError", "ValueError: no", "")
        outcomes = [
            Outcome(lease, kind, now - 1, now, str(lease.token), failure, delay_seconds=3.0 if self.is_put_off(lease, kind) else 0.0)
            for lease, kind in ends.items()
        ]
        silent = repeated_tries(lease.job_id for lease in ends)
        with self.via(side):
            settled = {one.outcome.lease: one for one in finish(outcomes)}
        assert settled.keys() == ends.keys()
        standing = {row.lease: row for row in self.standing(ends)}
        writable = {lease: row for lease, row in standing.items() if row.id not in self.locked}
        expected = {
            lease: states.place(row.flag)
            if row.flagged and ends[lease] not in (Kind.SUCCESS, Kind.ERROR)
            else self.back(lease, ends[lease])
            for lease, row in writable.items()
            if lease is not None
        }
        self.moved(changing=[row.id for row in writable.values()], moves=[(states.RUNNING, place) for place in expected.values()])
        for lease, kind in ends.items():
            one = settled[lease]
            if lease not in expected:
                assert (one.status, one.later) == ("", lease in standing)
                continue
            old, new = writable[lease], self.rows[lease.job_id]
            if kind is Kind.UNKNOWN_TASK and expected[lease][0] == "PENDING" and lease.job_id in silent:
                self.idle_stops[lease.job_id] -= 1  # the log has neither the start nor the end of a repeated try
            assert (one.status, new.place) == (expected[lease][0], expected[lease])
            given_back = kind in GIVEN_BACK and not old.flagged
            failed = kind is Kind.ERROR or (kind is Kind.RETRY and not old.flagged)
            self.same_budgets(old, attempt=old.attempt - given_back, failures=old.failures + failed)
            assert not new.flagged
            assert kind is not Kind.SUCCESS or str(new.result) == str(lease.token), "the result is that of another run"
            if new.status in states.FINAL:
                self.endings[new.id] = self.endings.get(new.id, 0) + 1

    def asked(self, verb: Callable[[int], Answer], row: Row, side: int, destination: states.Place) -> Answer:
        with self.via(side):
            answer = verb(row.id)
        self.moved(changing=[row.id] if answer else [], moves=[(row.place, destination)] if answer.verdict is Verdict.DONE else [])
        assert answer.status == self.rows[row.id].status
        return answer

    @precondition(lambda self: self.some("PENDING", "QUEUED", "RUNNING", "PAUSED", "ERROR"))
    @rule(side=SIDE, pick=PICK, outcome=st.sampled_from(["PAUSED", "CANCELED"]))
    def stop(self, side: int, pick: int, outcome: str) -> None:
        row = self.picked(pick, lambda row: row.status == "RUNNING")
        if row is not None:
            self.ask(row, outcome, side)

    def ask(self, row: Row, outcome: str, side: int) -> None:
        answer = self.asked(lambda job_id: control.request_job_cancel(job_id, outcome=outcome), row, side, states.place(outcome))
        new = self.rows[row.id]
        self.same_budgets(row)
        if row.status == "RUNNING":
            assert (answer.verdict, new.place) == (Verdict.REQUESTED, states.RUNNING)
            assert (new.flagged, new.flag) == (True, "CANCELED" if "CANCELED" in (outcome, row.flag) else "PAUSED")
        else:
            assert bool(answer) == states.allows(row.place, states.place(outcome))
            assert new.status == (outcome if answer else row.status)
            self.idle_stops[row.id] += bool(answer)
            if answer and outcome == "CANCELED":
                self.endings[row.id] = self.endings.get(row.id, 0) + 1

    @precondition(lambda self: self.some("PAUSED", "ERROR", "RUNNING"))
    @rule(side=SIDE, pick=PICK)
    def resume(self, side: int, pick: int) -> None:
        row = self.picked(pick, lambda row: row.flagged or row.status in ("PAUSED", "ERROR"))
        if row is None:
            return
        taken = [
            other for other in self.rows.values() if row.key and other.key == row.key and other.status in states.LIVE and other.id != row.id
        ]
        slept = Job.objects.get(pk=row.id).sleeps(datetime.min.replace(tzinfo=UTC))
        with self.via(side):
            answer = control.resume(row.id)
        self.moved(changing=[row.id] if answer else [], moves=[(row.place, states.QUEUED), (row.place, states.PENDING_TIME)])
        new = self.rows[row.id]
        if row.status == "RUNNING":
            assert (bool(answer), new.flagged, new.place) == (row.flagged, False, states.RUNNING)
            self.same_budgets(row)
        elif row.status == "PAUSED" or (row.status == "ERROR" and not taken):
            assert answer
            self.same_budgets(row, failures=0, crashes=0)
            ahead = (slept or row.attempt == 0) and row.run_at is not None and self.still_ahead(row.id)
            assert new.place == (states.PENDING_TIME if ahead else states.QUEUED)
        else:
            assert answer.verdict is Verdict.REFUSED
            assert row.status != "ERROR" or f"taken by job {taken[0].id}" in answer.reason

    def still_ahead(self, job_id: int) -> bool:
        """Ask the database's clock, as the verb did a moment ago: times here are whole seconds apart."""
        return Job.objects.filter(pk=job_id, run_at__gt=Now()).exists()

    @precondition(lambda self: self.some("PENDING"))
    @rule(side=SIDE, pick=PICK)
    def run_now(self, side: int, pick: int) -> None:
        row = self.picked(pick, lambda row: row.status == "PENDING")
        if row is not None:
            answer = self.asked(control.run_now, row, side, states.QUEUED)
            assert bool(answer) == (row.place == states.PENDING_TIME)
            self.same_budgets(row)

    @precondition(lambda self: self.some("RUNNING"))
    @rule(side=SIDE)
    def expire(self, side: int) -> None:
        with connection.cursor() as cursor:
            cursor.execute(
                f"SELECT id FROM jobqueue_job WHERE status = 'RUNNING' AND lease_expires_at < {Job.objects.database.now}".replace("%%", "%")
            )
            lost = {job_id for (job_id,) in cursor.fetchall()}
        with self.via(side):
            found = expire_stale_running_jobs()
        self.recovered(found, lost - self.locked)

    @precondition(lambda self: self.some("RUNNING"))
    @rule(side=SIDE, owner=st.sampled_from(WORKERS))
    def die(self, side: int, owner: str) -> None:
        """Kill a worker process while another process watches it."""
        lost = {row.id for row in self.rows.values() if row.owner == owner}
        with self.via(side):
            found = expire_owner(owner)
        self.recovered(found, lost - self.locked)

    def recovered(self, found: list[Expired], lost: Collection[int]) -> None:
        assert {one.job_id for one in found} == lost
        places = {states.QUEUED, states.PENDING_TIME, states.ERROR, states.PAUSED, states.CANCELED}
        for old in self.moved(changing=lost, moves=[(states.RUNNING, place) for place in places]).values():
            new = self.rows[old.id]
            begun = not old.crashes or old.begun  # a job's first crash is one whether its start is known or not
            self.same_budgets(old, crashes=old.crashes + 1) if begun else self.same_budgets(old, attempt=old.attempt - 1)
            if old.flagged:
                assert new.status == old.flag
            elif not begun:
                assert new.place == states.QUEUED
            elif old.recovery == "hold" or new.crashes >= MAX_CRASHES:
                assert new.status == "ERROR"
            else:
                assert new.place == (states.QUEUED if new.crashes == 1 else states.PENDING_TIME)
            if new.status in states.FINAL:
                self.endings[new.id] = self.endings.get(new.id, 0) + 1

    @precondition(lambda self: self.some("PENDING"))
    @rule(side=SIDE, limit=st.integers(1, 5))
    def promote(self, side: int, limit: int) -> None:
        places = (states.PENDING_TIME, states.PENDING_CHILDREN)
        waiting = [row.id for row in self.rows.values() if row.place in places and row.id not in self.locked]
        with self.via(side):
            promoted, parents = Job.objects.promote_due(limit), resume_parents()
        changed = self.moved(changing=waiting, moves=[(place, states.QUEUED) for place in places])
        assert len(changed) == len(promoted) + parents
        assert len(promoted) <= limit
        for old in changed.values():
            self.same_budgets(old)

    # Time, and other clients

    @precondition(lambda self: not self.locked)
    @rule(seconds=st.sampled_from([3, 6, 20, 40]))
    def time_passes(self, seconds: int) -> None:
        past = timedelta(seconds=seconds)
        columns = ("run_at", "lease_expires_at", "heartbeat_at")
        Job.objects.exclude(status__in=states.FINAL).update(**{name: F(name) - past for name in columns})
        self.moved(changing=self.rows.keys(), moves=[])

    @precondition(lambda self: not self.locked and self.some("RUNNING"))
    @rule(side=SIDE)
    def all_workers_stall_and_somebody_sweeps(self, side: int) -> None:
        self.time_passes(40)
        self.expire(side)

    @precondition(lambda self: not self.locked and self.some("PENDING"))
    @rule(side=SIDE)
    def what_waits_becomes_due(self, side: int) -> None:
        self.time_passes(20)
        self.promote(side, MAX_JOBS)

    @precondition(lambda self: len(self.parties) > 2 and not self.locked and self.unseen is None and self.rows)
    @rule(pick=PICK)
    def somebody_locks_a_row(self, pick: int) -> None:
        job_id = [*self.rows][pick % len(self.rows)]
        with self.via(2):
            self.open.enter_context(transaction.atomic())
            list(Job.objects.select_for_update().filter(pk=job_id).values_list("pk"))
        self.locked = {job_id}

    @precondition(lambda self: len(self.parties) > 2 and not self.locked and self.unseen is None and len(self.rows) < MAX_JOBS)
    @rule(queue=st.sampled_from(QUEUES))
    def somebody_enqueues_without_committing(self, queue: str) -> None:
        with self.via(2):
            self.open.enter_context(transaction.atomic())
            self.unseen = enqueue(JobSpec("tests.tasks.add", queue=queue)).job_id
        self.moved(changing=[], moves=[])

    @precondition(lambda self: self.locked or self.unseen is not None)
    @rule(commit=st.booleans())
    def somebody_ends_the_transaction(self, commit: bool) -> None:
        self.close_open_transaction(commit=commit)

    def close_open_transaction(self, *, commit: bool = True) -> None:
        made = [] if self.unseen is None or not commit else [self.unseen]
        with self.via(2 if len(self.parties) > 2 else 0):
            if not commit:
                transaction.set_rollback(True)
            self.open.close()
        self.locked, self.unseen = set(), None
        self.moved(changing=made, moves=[(states.NEW, states.QUEUED)])
        assert all(job_id in self.rows for job_id in made)

    # What holds always

    @invariant()
    def what_holds_always_holds(self) -> None:
        for row in self.rows.values():
            tokens = [lease.token for lease in self.given if lease.job_id == row.id]
            assert row.token == max(tokens, default=self.first_tokens[row.id]), "the newest lease that was given is the row's"
            assert row.lease is None or self.given[row.lease] == row.owner
            assert row.attempt == row.runs_ended + (row.status == "RUNNING"), "every run is counted once"
            assert row.crashes < MAX_CRASHES or row.status in ("ERROR", "PAUSED", "CANCELED"), "nothing runs on a spent budget"
            assert self.endings.get(row.id, 0) == (row.status in states.FINAL), "a job ends once"
        keys = [row.key for row in self.rows.values() if row.key and row.status in states.LIVE]
        assert len(keys) == len(set(keys)), "one live job has a key"

    def drain(self) -> None:
        """Run every job to its end; ten rounds are enough for any state."""
        for _ in range(10):
            waiting = [row for row in self.rows.values() if row.status not in states.FINAL]
            if not waiting:
                return
            for row in waiting:
                if row.status in ("PAUSED", "ERROR") and not control.resume(row.id):
                    control.cancel(row.id)
            self.rows = self.look()
            self.time_passes(40)
            self.expire(0)
            self.promote(0, MAX_JOBS + 1)
            self.claim(0, WORKERS[0], (), MAX_JOBS + 1, 0)
            self.write({row.lease: Kind.SUCCESS for row in self.rows.values() if row.lease is not None})
        raise AssertionError(f"Not at an end: {[row for row in self.rows.values() if row.status not in states.FINAL]}")
