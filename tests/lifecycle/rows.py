"""The rows of jobs as a state machine reads them, over its connections, and what may change in them."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, NamedTuple

from django.db import connection, connections
from hypothesis.stateful import RuleBasedStateMachine

from jobqueue.core import states
from jobqueue.core.json_columns import UNKNOWN_SINCE
from jobqueue.db import Lease
from jobqueue.models import Job

COLUMNS = (
    "id, status, waiting_for, lease_token, lease_owner, attempt, failures, crashes, cancel_requested, cancel_outcome, queue, claim_rank,"
    " unique_key, recovery, worker_ids, run_at, lease_expires_at, result, heartbeat_at, started_at, finished_at, message, history, progress"
)
LIKELY = 9  # a pick below it is used on what the verb is meant for


class Row(NamedTuple):
    """One job as the database has it."""

    id: int
    status: str
    waiting_for: str
    token: int
    owner: str
    attempt: int
    failures: int
    crashes: int
    flagged: bool
    flag: str
    queue: str
    rank: int
    key: str
    recovery: str
    worker_ids: Any
    run_at: Any
    lease_expires_at: Any
    result: Any
    rest: tuple[Any, ...]

    @property
    def place(self) -> states.Place:
        return (self.status, self.waiting_for)

    @property
    def runs_ended(self) -> int:
        """How many runs have reported the name of their worker."""
        return len(json.loads(self.worker_ids) if isinstance(self.worker_ids, str) else self.worker_ids)

    @property
    def begun(self) -> bool:
        """Whether its start was written."""
        return self.rest[1] is not None

    @property
    def lease(self) -> Lease | None:
        return Lease(self.id, self.token) if self.status == "RUNNING" else None


Rows = dict[int, Row]


def repeated_tries(ids: Iterable[int]) -> set[int]:
    """Return the jobs whose task was unknown before; the log has neither the start nor the end of such a try."""
    rows = Job.objects.filter(pk__in=[*ids]).values_list("pk", "options", "started_at")
    return {pk for pk, options, started_at in rows if UNKNOWN_SINCE in options and started_at is None}


class RowsMachine(RuleBasedStateMachine):
    """A state machine that keeps the rows which it read last, and has no verbs."""

    parties: list[Any] = []  # set by the test: the connections

    def __init__(self) -> None:
        super().__init__()
        self.given: dict[Lease, str] = {}  # every lease that was ever given, with its owner
        self.endings: dict[int, int] = {}
        self.idle_stops: Counter[int] = Counter()
        self.first_tokens: dict[int, int] = {}  # what each row began with
        self.locked: set[int] = set()
        self.unseen: int | None = None  # enqueued, not committed
        self.open = contextlib.ExitStack()
        connections["default"] = self.parties[0]
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM jobqueue_job")
            cursor.execute("DELETE FROM jobqueue_jobevent")
        self.rows: Rows = {}

    def look(self) -> Rows:
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT {COLUMNS} FROM jobqueue_job ORDER BY id")
            rows = {row[0]: Row(*row[:8], bool(row[8]), *row[9:18], row[18:]) for row in cursor.fetchall()}
        for row in rows.values():
            self.first_tokens.setdefault(row.id, row.token)
        return rows

    @contextlib.contextmanager
    def via(self, side: int) -> Iterator[None]:
        """Make the verbs inside use one of the two connections."""
        connections["default"] = self.parties[side]
        try:
            yield
        finally:
            connections["default"] = self.parties[0]

    def moved(self, *, changing: Collection[int], moves: Collection[tuple[states.Place, states.Place]]) -> Rows:
        """Read the rows again and check the rules of all verbs; return the rows that changed, as they were before."""
        before, after = self.rows, self.look()
        assert before.keys() <= after.keys(), "a job is lost"
        for job_id, row in after.items():
            old = before.get(job_id)
            if old == row:
                continue
            assert job_id in changing, f"{old} changed to {row}"
            origin = states.NEW if old is None else old.place
            if origin != row.place or old is None:
                assert states.allows(origin, row.place), f"{origin} -> {row.place} is not in the table"
                assert (origin, row.place) in moves, f"{origin} -> {row.place} is no move of this verb"
            if old is not None:
                assert old.status not in states.FINAL, "what has ended changes no more"
                claimed = row.status == "RUNNING" and old.status != "RUNNING"
                assert row.token == old.token + claimed, "the token rises at a claim, and only then"
        self.rows = after
        return {job_id: row for job_id, row in before.items() if after[job_id] != row}

    def picked(self, pick: int, likely: Callable[[Row], bool]) -> Row | None:
        """Return one of the unlocked jobs, usually one to which the verb applies."""
        free = [row for row in self.rows.values() if row.id not in self.locked]
        wanted = [row for row in free if likely(row)]
        choice = wanted if wanted and pick < LIKELY else free
        return choice[pick % len(choice)] if choice else None

    def some(self, *statuses: str) -> bool:
        """Return whether a job is in one of these states."""
        return any(row.status in statuses for row in self.rows.values())

    def same_budgets(self, old: Row, **changed: int) -> None:
        """Check that only the named attempts were used up or given back."""
        new = self.rows[old.id]
        expected = {"attempt": old.attempt, "failures": old.failures, "crashes": old.crashes, **changed}
        assert {name: getattr(new, name) for name in expected} == expected

    def standing(self, leases: Collection[Lease]) -> list[Row]:
        """Return the rows of the leases that are still valid."""
        return [self.rows[lease.job_id] for lease in leases if self.rows[lease.job_id].lease == lease]
