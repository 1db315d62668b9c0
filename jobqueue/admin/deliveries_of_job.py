"""The newest deliveries of a job, for its page; shown to users who may see deliveries."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.urls import reverse

from jobqueue.admin import delivery_columns as cells
from jobqueue.webhooks.redelivery import of_job

MOST = 10
CELLS = (cells.status, cells.event, cells.receiver, cells.attempts, cells.next_attempt, cells.last_response)


def context(request: HttpRequest, job_id: int) -> dict[str, Any]:
    """Return the context of a job's deliveries, with the URL of all of them if there are more."""
    if not any(request.user.has_perm(f"jobqueue.{verb}_webhookdelivery") for verb in ("view", "change")):
        return {"deliveries": []}
    deliveries = of_job(job_id, MOST + 1)
    all_url = f"{reverse('admin:jobqueue_webhookdelivery_changelist')}?q={job_id}" if len(deliveries) > MOST else ""
    return {"deliveries": [(delivery, *(cell(delivery) for cell in CELLS)) for delivery in deliveries[:MOST]], "all_deliveries": all_url}
