"""The events that a client of a stream gets: those that it requested, if its user may see their jobs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from jobqueue.access.visible import Sight
from jobqueue.core.targets import Target
from jobqueue.db.eventlog import EventRow


class EventSelection(NamedTuple):
    """A selection of events: those of a job, of a target, of a tenant, or all.

    `sight` restricts them to the jobs that the client's user may see.
    """

    job_id: int | None = None
    target: Target | None = None
    tenant: str | None = None
    sight: Sight | None = None

    def has(self, row: EventRow) -> bool:
        """Return whether an event belongs to the selection; `sight` is not checked."""
        return self._replace(sight=None) in _wants(row)

    def shown(self, rows: list[EventRow]) -> list[EventRow]:
        """Return the events that the client's user may see."""
        if self.sight is None:
            return rows
        seen = self.sight.among({row.job_id for row in rows})
        return [row for row in rows if row.job_id in seen]


def _wants(row: EventRow) -> tuple[EventSelection, ...]:
    """Return all selections that an event belongs to."""
    behind = (EventSelection(target=Target(row.tenant, row.target)),) if row.target else ()
    return (EventSelection(job_id=row.job_id), *behind, EventSelection(tenant=row.tenant), EventSelection())


def matched(rows: list[EventRow], clients: Iterable[EventSelection]) -> list[tuple[EventRow, list[EventSelection]]]:
    """Return the events that any client gets, each with the selections of those clients; one query for each different sight."""
    keys_of: dict[EventSelection, list[EventSelection]] = defaultdict(list)
    for key in clients:
        keys_of[key._replace(sight=None)].append(key)
    pairs = [(row, keys) for row in rows if (keys := [key for bare in _wants(row) for key in keys_of.get(bare, ())])]
    ids_of: dict[Sight, set[int]] = defaultdict(set)
    for row, keys in pairs:
        for key in keys:
            if key.sight is not None:
                ids_of[key.sight].add(row.job_id)
    seen = {sight: sight.among(ids) for sight, ids in ids_of.items()}
    if not seen:
        return pairs
    shown = ((row, [key for key in keys if key.sight is None or row.job_id in seen[key.sight]]) for row, keys in pairs)
    return [(row, keys) for row, keys in shown if keys]
