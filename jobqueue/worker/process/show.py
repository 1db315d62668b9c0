"""Keep the row of this process in the table of workers, for people."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from typing import Any

import jobqueue
from jobqueue import conf
from jobqueue.conf import Settings
from jobqueue.core.service import Service
from jobqueue.db import Now, hygiene
from jobqueue.models import Job, Worker
from jobqueue.worker.process.identity import Identity

logger = logging.getLogger("jobqueue")


def show(identity: Identity, settings: Settings, state: str, **told: Any) -> None:
    """Write the row; `told` are its changing columns."""
    workers = Worker.objects.using(Job.objects.database.alias)
    values = {"state": state, "heartbeat_at": Now(), **told}
    if not workers.filter(pk=identity.uuid).update(**values):
        values.update(
            host=identity.host, pid=identity.pid, queues=list(settings.queues), version=jobqueue.__version__, release=conf.release()
        )
        workers.create(pk=identity.uuid, **values)


def health(services: Iterable[Service]) -> dict[str, dict[str, float | str]]:
    """Return how each service does; one that is gone ends the process, and so is not told about."""
    now = time.monotonic()
    return {
        one.name: {"age": round(now - one.last_good_turn, 1), "busy": round(one.busy_seconds, 1), "failures": one.failures, **one.details}
        for one in services
    }


def forget(worker_ids: Sequence[str]) -> None:
    """Drop the rows of processes that have ended."""
    Worker.objects.using(Job.objects.database.alias).filter(pk__in=worker_ids).delete()


def say_goodbye(identity: Identity) -> None:
    """Drop the row of this process, which ends in order."""
    try:
        forget([identity.worker_id])
        hygiene.close_all()
    except Exception as error:  # noqa: BLE001 - the row is for people only, and the database may be gone
        logger.warning("The worker's row could not be removed: %s", str(error).strip())
