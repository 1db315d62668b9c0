"""The row of this process in the table of workers, which operators see on the Workers page."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from typing import Any, Protocol

from django.db.models.sql import UpdateQuery

import jobqueue
from jobqueue import conf
from jobqueue.conf import Settings
from jobqueue.db import Now, hygiene
from jobqueue.lifecycle.workers import record_left
from jobqueue.models import Job, LeftWorker, Worker
from jobqueue.worker.process.identity import Identity

logger = logging.getLogger("jobqueue")


class Watched(Protocol):
    """A service or a duty, whose health operators see."""

    name: str
    failures: int
    last_good_turn: float

    @property
    def busy_seconds(self) -> float:
        """How long the current turn has lasted; 0 between turns."""

    @property
    def details(self) -> dict[str, float | str]:
        """More values of its state."""


def show(identity: Identity, settings: Settings, state: str, **columns: Any) -> bool:
    """Write the row of this worker; `columns` has those that change. Return whether the worker is to be drained."""
    database = Job.objects.database
    workers = Worker.objects.using(database.alias)
    values = {"state": state, "heartbeat_at": Now(), **columns}
    query: Any = workers.filter(pk=identity.uuid).query.chain(UpdateQuery)
    query.add_update_values(values)
    sql, params = query.get_compiler(using=database.alias).as_sql()
    rows = database.rows(f"{sql} RETURNING drain_requested", params)  # in one statement, because each worker sends it every 10 s
    if rows:
        return bool(rows[0][0])
    values.update(host=identity.host, pid=identity.pid, queues=list(settings.queues), version=jobqueue.__version__, release=conf.release())
    workers.create(pk=identity.uuid, **values)
    return False


def health(services: Iterable[Watched]) -> dict[str, dict[str, float | str]]:
    """Return the health of each service by name: seconds since its last good turn and in its current turn, and failures in a row."""
    now = time.monotonic()
    return {
        service.name: {
            "age": round(now - service.last_good_turn, 1),
            "busy": round(service.busy_seconds, 1),
            "failures": service.failures,
            **service.details,
        }
        for service in services
    }


def remove_row(identity: Identity, *, failed: bool, reason: str) -> None:
    """Delete the row of this worker at its end, and record how it left."""
    try:
        record_left([identity.uuid], LeftWorker.How.FAILED if failed else LeftWorker.How.STOPPED, reason)
        hygiene.close_all()
    except Exception as error:  # noqa: BLE001 - only operators read the row, and the database may be unreachable
        logger.warning("The worker's row could not be removed: %s", str(error).strip())
