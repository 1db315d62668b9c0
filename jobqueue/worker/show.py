"""Keep the row of this process in the table of workers, for people."""

from __future__ import annotations

import logging
from datetime import timedelta

from django.db.models.functions import Now

import jobqueue
from jobqueue.conf import Settings
from jobqueue.db import hygiene
from jobqueue.models import Job, Worker
from jobqueue.worker.identity import Identity

FORGET_AFTER = timedelta(days=1)

logger = logging.getLogger("jobqueue")


def show(identity: Identity, settings: Settings, state: str, **counts: int) -> None:
    """Write the row (`counts` are its slots, running, stuck), and drop rows of processes that were not heard for a day."""
    workers = Worker.objects.using(Job.objects.database.alias)
    values = {"state": state, "heartbeat_at": Now(), **counts}
    if not workers.filter(pk=identity.uuid).update(**values):
        values.update(host=identity.host, pid=identity.pid, queues=list(settings.queues), version=jobqueue.__version__)
        workers.create(pk=identity.uuid, **values)
        workers.filter(heartbeat_at__lt=Now() - FORGET_AFTER).delete()


def forget(identity: Identity) -> None:
    """Drop the row of a process that ends in order."""
    try:
        Worker.objects.using(Job.objects.database.alias).filter(pk=identity.uuid).delete()
        hygiene.close_all()
    except Exception as error:  # noqa: BLE001 - the row is for people only, and the database may be gone
        logger.warning("The worker's row could not be removed: %s", str(error).strip())
