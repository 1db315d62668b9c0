"""Leadership: one worker at a time leads a duty, for a term that is named by its holder and the time it was acquired.

The row of the duty is the lease. It is free when nobody holds it, or when its heartbeat is older than `DUTY_LEASE_SECONDS` (10 s) by
the database's clock. Contenders look at all rows with one plain read, and acquire a free one with
``select_for_update(skip_locked=True)``. The holder renews every `DUTY_HEARTBEAT_SECONDS` (2 s) and names its term in doing so: once
another has acquired the row, no renewal and no resignation of the old holder moves it.

A holder trusts itself for four fifths of the lease (8 s) after the beginning of its last good renewal, by its own clock, which is
less than others wait. Any doubt (an error, a late answer) means that it does not lead. That alone would not do: a process that stood still
between the look at its clock and its write believes what was true before. So each write transaction of a duty asks the database first
whether the term stands, and keeps a lock on the row that lets renewals pass, but nobody take over: FOR KEY SHARE against the FOR
UPDATE of whoever acquires. A process that stands still in the middle of such a transaction loses it, and the lock, after 5 s. On SQLite the
transaction itself keeps everybody out.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any

from jobqueue import conf
from jobqueue.exceptions import LeadershipLost
from jobqueue.managers.duties import Standing
from jobqueue.models import BackgroundJobLease

TRUSTED_SHARE = 0.8


class Term:
    """One term of leadership of one duty, as its holder knows it."""

    def __init__(self, holder: str, name: str, acquired_at: datetime, began: float, metadata: dict[str, Any]) -> None:
        """Begin; `began` is the monotonic time before the acquisition was sent, `metadata` what the terms before have told."""
        self.holder, self.name, self.acquired_at, self.metadata = holder, name, acquired_at, metadata
        self.began = self.renewed = began
        self.ended = False

    @property
    def trusted(self) -> bool:
        """Whether the holder may believe that it leads."""
        return not self.ended and time.monotonic() - self.renewed < TRUSTED_SHARE * conf.current().duty_lease_seconds

    def check(self) -> None:
        """Raise `LeadershipLost` unless this term stands, and keep it so until the end of the transaction; the fence of its writes."""
        if not self.trusted:
            raise LeadershipLost(f"The duty {self.name!r} has not been renewed in time, so another may lead it.")
        if not BackgroundJobLease.objects.leads(self.holder, self.name, self.acquired_at):
            self.ended = True
            raise LeadershipLost(f"The duty {self.name!r} was taken over, or released by a person.")


class Clock:
    """Tell the database's time without asking it each time."""

    def __init__(self) -> None:
        """Begin with our own clock."""
        self._told, self._at = datetime.now().astimezone(), time.monotonic()

    def set(self, told: datetime) -> None:
        """Note what the database says now."""
        self._told, self._at = told, time.monotonic()

    def now(self) -> datetime:
        """Return the database's time, as near as we know it."""
        return self._told + timedelta(seconds=time.monotonic() - self._at)


class Leadership:
    """Contend for duties, renew and resign, for one worker process; one thread calls it."""

    def __init__(self, holder: str) -> None:
        """Hold nothing."""
        self.holder = holder
        self.terms: dict[str, Term] = {}
        self.clock = Clock()

    def contend(self, names: Collection[str]) -> list[Term]:
        """Look how all duties stand, and begin a term of each of these that is free; return the new terms."""
        standings, now = BackgroundJobLease.objects.look()
        if now is not None:
            self.clock.set(now)
        self._compare(standings)
        known = {one.name for one in standings}
        if missing := set(names) - known:
            BackgroundJobLease.objects.add(missing)
        free = {one.name for one in standings if one.free} | missing
        wanted = free.intersection(names) - set(self.terms)
        return self._acquire(wanted) if wanted else []

    def _compare(self, standings: Collection[Standing]) -> None:
        """End what others have taken over, and give back what is ours without our knowing: an answer was lost with its connection."""
        by_name = {one.name: one for one in standings}
        for name, term in self.terms.items():
            found = by_name.get(name)
            if found is None or (found.holder, found.acquired_at) != (term.holder, term.acquired_at):
                term.ended = True
        unknown = {
            one.name: one.acquired_at
            for one in standings
            if one.holder == self.holder and one.acquired_at and (one.name not in self.terms or self.terms[one.name].ended)
        }
        if unknown:
            BackgroundJobLease.objects.resign(self.holder, unknown)

    def _acquire(self, names: Collection[str]) -> list[Term]:
        began = time.monotonic()
        taken = BackgroundJobLease.objects.acquire(self.holder, names)
        for one in taken.values():  # where there was no row, the look has told no time
            self.clock.set(one.acquired_at)
        new = [Term(self.holder, name, one.acquired_at, began, one.metadata) for name, one in taken.items()]
        self.terms.update({term.name: term for term in new})
        return new

    def renew(self, metadata: Mapping[str, Any]) -> None:
        """Renew every term and write what the duties tell; end those that do not stand any more."""
        held = self._standing()
        if not held:
            return
        began = time.monotonic()
        still, now = BackgroundJobLease.objects.renew(self.holder, {name: term.acquired_at for name, term in held.items()}, metadata)
        if now is not None:
            self.clock.set(now)
        for name, term in held.items():
            if name in still:
                term.renewed = began
            else:
                term.ended = True

    def resign(self, names: Collection[str], metadata: Mapping[str, Any]) -> int:
        """End terms, so that others may begin theirs at once; return how many ended."""
        ours = {name: term.acquired_at for name, term in self.terms.items() if name in names}
        for name in ours:
            self.terms.pop(name).ended = True  # before the row says so
        told = {name: metadata[name] for name in ours if name in metadata}
        return BackgroundJobLease.objects.resign(self.holder, ours, told) if ours else 0

    def forget(self, name: str) -> None:
        """Let go of a term that has ended."""
        self.terms.pop(name, None)

    def _standing(self) -> dict[str, Term]:
        return {name: term for name, term in self.terms.items() if not term.ended}
