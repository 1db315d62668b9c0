"""Leadership: one worker at a time leads a duty, for a term that is identified by its holder and the time it was acquired.

The row of the duty is the lease. It is free if no worker holds it, or if its heartbeat is older than `DUTY_LEASE_SECONDS` (10 s) by
the clock of the database. Contenders read all rows with one plain query, and acquire a free one with
``select_for_update(skip_locked=True)``. The holder renews the lease every `DUTY_HEARTBEAT_SECONDS` (2 s), and names its term in the
statement. When another worker has acquired the row, a renewal or a resignation of the old holder changes nothing.

A holder trusts its term for four fifths of the lease (8 s) after the start of its last good renewal, by its own clock. This is less
than the time that contenders wait. If in doubt (an error, a late response), it does not lead. This is not sufficient: a process that is
stopped between reading its clock and writing acts on outdated state. So each write transaction of a duty first queries whether the term
is still valid. It also locks the row against takeover, but not against renewal: FOR KEY SHARE conflicts with the FOR UPDATE of a
contender. If a process is stopped in the middle of such a transaction, the database ends the transaction, and with it the lock, after
5 s. On SQLite, the transaction itself blocks all other writers.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any

from jobqueue import conf
from jobqueue.exceptions import LeadershipLost
from jobqueue.lifecycle import wakeup
from jobqueue.managers.duties import DutyState
from jobqueue.models import BackgroundJobLease

TRUSTED_SHARE = 0.8


class Term:
    """One term of leadership of one duty, as its holder sees it."""

    def __init__(self, holder: str, name: str, acquired_at: datetime, began: float, metadata: dict[str, Any]) -> None:
        """Begin a term; `began` is the monotonic time before the acquisition was sent, `metadata` is what the earlier terms stored."""
        self.holder, self.name, self.acquired_at, self.metadata = holder, name, acquired_at, metadata
        self.began = self.renewed = began
        self.ended = False

    @property
    def trusted(self) -> bool:
        """Whether the last good renewal is recent enough for the holder to act as the leader."""
        return not self.ended and time.monotonic() - self.renewed < TRUSTED_SHARE * conf.current().duty_lease_seconds

    def check(self) -> None:
        """Raise `LeadershipLost` unless this term is valid, and keep it valid until the end of the transaction.

        This is the fence of the writes of a duty.
        """
        if not self.trusted:
            raise LeadershipLost(f"The lease of the duty {self.name!r} was not renewed in time, so another worker may lead it.")
        if not BackgroundJobLease.objects.leads(self.holder, self.name, self.acquired_at):
            self.ended = True
            raise LeadershipLost(f"The duty {self.name!r} was taken over by another worker, or released by an operator.")


class DatabaseClock:
    """The clock of the database, computed from the last known time without a query."""

    def __init__(self) -> None:
        """Start with the local clock."""
        self._known, self._at = datetime.now().astimezone(), time.monotonic()

    def set(self, now: datetime) -> None:
        """Set the current time of the database."""
        self._known, self._at = now, time.monotonic()

    def now(self) -> datetime:
        """Return the time of the database, as far as it is known here."""
        return self._known + timedelta(seconds=time.monotonic() - self._at)


class Leadership:
    """The terms of one worker process: it contends for duties, renews and resigns. Only one thread may call it."""

    def __init__(self, holder: str) -> None:
        """Start without terms."""
        self.holder = holder
        self.terms: dict[str, Term] = {}
        self.clock = DatabaseClock()

    def contend(self, names: Collection[str]) -> list[Term]:
        """Read the leases of all duties, and begin a term for each duty in `names` that is free; return the new terms."""
        states, now = BackgroundJobLease.objects.duty_states()
        if now is not None:
            self.clock.set(now)
        self._compare(states)
        known = {state.name for state in states}
        if missing := set(names) - known:
            BackgroundJobLease.objects.add(missing)
        free = {state.name for state in states if state.free} | missing
        wanted = free.intersection(names) - set(self.terms)
        return self._acquire(wanted) if wanted else []

    def _compare(self, states: Collection[DutyState]) -> None:
        """End terms that other workers have taken over, and resign from terms that this worker holds without knowing it.

        It does not know of a term if the response to the acquisition was lost with the connection.
        """
        by_name = {state.name: state for state in states}
        for name, term in self.terms.items():
            state = by_name.get(name)
            if state is None or (state.holder, state.acquired_at) != (term.holder, term.acquired_at):
                term.ended = True
        unknown = {
            state.name: state.acquired_at
            for state in states
            if state.holder == self.holder and state.acquired_at and (state.name not in self.terms or self.terms[state.name].ended)
        }
        if unknown:
            BackgroundJobLease.objects.resign(self.holder, unknown)

    def _acquire(self, names: Collection[str]) -> list[Term]:
        began = time.monotonic()
        acquired = BackgroundJobLease.objects.acquire(self.holder, names)
        for row in acquired.values():  # `duty_states` returns no time if the table was empty
            self.clock.set(row.acquired_at)
        new = [Term(self.holder, name, row.acquired_at, began, row.metadata) for name, row in acquired.items()]
        self.terms.update({term.name: term for term in new})
        return new

    def renew(self, metadata: Mapping[str, Any]) -> None:
        """Renew all terms and write the metadata of their duties; end terms that are no longer valid."""
        terms = self._current_terms()
        if not terms:
            return
        began = time.monotonic()
        still, now = BackgroundJobLease.objects.renew(self.holder, {name: term.acquired_at for name, term in terms.items()}, metadata)
        if now is not None:
            self.clock.set(now)
        for name, term in terms.items():
            if name in still:
                term.renewed = began
            else:
                term.ended = True

    def resign(self, names: Collection[str], metadata: Mapping[str, Any]) -> int:
        """End terms, so that other workers can lead the duties at once; return the number of terms that were ended."""
        acquired_at = {name: term.acquired_at for name, term in self.terms.items() if name in names}
        for name in acquired_at:
            self.terms.pop(name).ended = True  # before the row is released
        written = {name: metadata[name] for name in acquired_at if name in metadata}
        return BackgroundJobLease.objects.resign(self.holder, acquired_at, written) if acquired_at else 0

    def forget(self, name: str) -> None:
        """Remove a term that has ended."""
        self.terms.pop(name, None)

    def _current_terms(self) -> dict[str, Term]:
        return {name: term for name, term in self.terms.items() if not term.ended}


def release(name: str) -> str:
    """Release a duty, so that the next worker that checks leads it; return the id of the worker that led it, or ""."""
    holder = BackgroundJobLease.objects.release(name)
    if holder:
        wakeup.duties_changed()
    return holder
