"""The queries on the leases of duties. The holder of a term and the time at which it was acquired identify the term."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any, Generic, NamedTuple, Self

from django.db import models, router
from django.db.models import Case, F, Q, Value, When
from django.db.models.sql import UpdateQuery

from jobqueue import conf
from jobqueue.db import Database, Now, for_alias
from jobqueue.managers import Row

NO_HOLDER: dict[str, Any] = {"held_by_worker_id": "", "lease_acquired_at": None, "heartbeat_at": None}


class DutyState(NamedTuple):
    """The state of a duty: its holder, and whether it can be taken, by the database's clock."""

    name: str
    holder: str
    acquired_at: datetime | None
    free: bool


class NewTerm(NamedTuple):
    """A term that has just begun, with the metadata that earlier terms have written to the row."""

    acquired_at: datetime
    metadata: dict[str, Any]


class LeaseQuerySet(models.QuerySet[Row]):
    """Sets of leases."""

    def free(self) -> Self:
        """Return the leases without a holder, or whose heartbeat is older than a lease.

        A heartbeat that is further than a lease in the future also counts as old. It exists if the clock was set
        back, or if the row comes from another database.
        """
        old = Q(heartbeat_at__lt=Now() - _lease()) | Q(heartbeat_at__gt=Now() + _lease())
        return self.filter(Q(heartbeat_at__isnull=True) | old)

    def terms(self, holder: str, terms: Mapping[str, datetime]) -> Self:
        """Return the leases that a holder still has, that is, whose terms are still these."""
        condition = Q(pk__in=())
        for name, acquired_at in terms.items():
            condition |= Q(job_name=name, lease_acquired_at=acquired_at)
        return self.filter(condition, held_by_worker_id=holder)


class LeaseManager(models.Manager.from_queryset(LeaseQuerySet), Generic[Row]):  # type: ignore[misc]
    """The queries on leases, on the database that they are written to."""

    @property
    def current(self) -> LeaseQuerySet[Row]:
        """All leases, read from the database that they are written to."""
        return LeaseQuerySet(self.model, using=router.db_for_write(self.model))

    @property
    def database(self) -> Database:
        """The statements of the database, on the table of leases."""
        return for_alias(router.db_for_write(self.model), self.model._meta.db_table)

    def duty_states(self) -> tuple[list[DutyState], datetime | None]:
        """Return the state of all duties and the database's time (None without a row), by one plain read."""
        columns = ("job_name", "held_by_worker_id", "lease_acquired_at", "heartbeat_at", "now")
        rows = list(self.current.order_by().annotate(now=Now()).values_list(*columns))
        lease = _lease()
        states = [DutyState(name, holder, at, beat is None or abs(now - beat) > lease) for name, holder, at, beat, now in rows]
        return states, rows[0][4] if rows else None

    def add(self, names: Collection[str]) -> None:
        """Insert the rows of duties that have none."""
        self.current.bulk_create([self.model(job_name=name) for name in sorted(names)], ignore_conflicts=True)

    def acquire(self, holder: str, names: Collection[str]) -> dict[str, NewTerm]:
        """Begin a term for each of these duties that is free. Skip rows that are locked."""
        with self.database.atomic():
            # FOR UPDATE, because it conflicts with the fence of a leader's transaction. So no worker takes over
            # during a write of the leader.
            rows = self.current.free().filter(job_name__in=names).select_for_update(skip_locked=True).order_by("job_name")
            free = list(rows.annotate(now=Now()).values_list("job_name", "now", "metadata"))
            if free:
                # The time that was read, and not Now(), because later statements compare the term with this
                # value, and SQLite compares texts.
                now = free[0][1]
                self.current.filter(pk__in=[row[0] for row in free]).update(
                    held_by_worker_id=holder, lease_acquired_at=now, heartbeat_at=now
                )
        return {name: NewTerm(now, metadata if isinstance(metadata, dict) else {}) for name, _, metadata in free}

    def renew(self, holder: str, terms: Mapping[str, datetime], metadata: Mapping[str, Any]) -> tuple[set[str], datetime | None]:
        """Renew terms and write the metadata of their duties, in one statement; return the terms still held, and the database's time."""
        if metadata:
            statement = self._renewal(holder, terms, metadata)
        else:  # the same statement for hours; to compile it takes several times as long as to send it
            statement = _kept_renewal(self, router.db_for_write(self.model), holder, tuple(terms.items()))
        rows = self.database.rows(*statement)
        return {row[0] for row in rows}, self.database.moment(rows[0][1]) if rows else None

    def _renewal(self, holder: str, terms: Mapping[str, datetime], metadata: Mapping[str, Any]) -> tuple[str, tuple[Any, ...]]:
        rows = self.current.terms(holder, terms)
        query: Any = rows.query.chain(UpdateQuery)
        query.add_update_values({"heartbeat_at": Now(), **_metadata_change(terms, metadata)})
        sql, params = query.get_compiler(using=rows.db).as_sql()
        return f"{sql} RETURNING job_name, {self.database.now}", tuple(params)

    def resign(self, holder: str, terms: Mapping[str, datetime], metadata: Mapping[str, Any] | None = None) -> int:
        """End terms, so that other workers can take the duties immediately; return how many ended."""
        return self.current.terms(holder, terms).update(**NO_HOLDER, **_metadata_change(terms, metadata or {}))

    def release_all_of(self, holder: str) -> int:
        """End every term of a worker process that is known to be dead; return the number of terms."""
        return self.current.filter(held_by_worker_id=holder).update(**NO_HOLDER)

    def release(self, name: str) -> str:
        """End the current term of a duty at the request of an operator; return its holder, or "" if it had none."""
        with self.database.atomic():
            row = self.current.filter(pk=name).select_for_update(no_key=True).values_list("held_by_worker_id", flat=True).first()
            if row:
                self.current.filter(pk=name).update(**NO_HOLDER)
        return row or ""

    def leads(self, holder: str, name: str, acquired_at: datetime) -> bool:
        """Return whether a term is still held. If it is, no other worker can take over until the end of this transaction."""
        return self.database.lock_row_if(("job_name", name), ("held_by_worker_id", holder), ("lease_acquired_at", acquired_at))


@functools.lru_cache(maxsize=4)
def _kept_renewal(leases: Any, alias: str, holder: str, terms: tuple[tuple[str, datetime], ...]) -> tuple[str, tuple[Any, ...]]:
    """Return the statement that renews terms on the database of an alias, and its parameters."""
    renewal: tuple[str, tuple[Any, ...]] = leases._renewal(holder, dict(terms), {})
    return renewal


def _lease() -> timedelta:
    return timedelta(seconds=conf.current().duty_lease_seconds)


def _metadata_change(terms: Mapping[str, datetime], metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the change that writes the metadata of each duty."""
    changes = [When(job_name=name, then=Value(metadata[name], output_field=models.JSONField())) for name in terms if name in metadata]
    return {"metadata": Case(*changes, default=F("metadata"))} if changes else {}
