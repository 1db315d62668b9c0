"""The audit of the command line: one record for each object that a subcommand has changed, left as it was, or refused to change."""

from __future__ import annotations

from typing import Any

from jobqueue.access import audit
from jobqueue.management.bulk import COMMANDS
from jobqueue.models import Job, Queue, WebhookDelivery

QUEUES, JOBS, DELIVERIES = (
    ("pause", "resume", "set-webhook", "test-webhook", "forget"),
    ("cancel", "resume-job", "rerun"),
    ("redeliver", "deliveries"),
)
WORKERS = ("drain", "undrain")
CHANGES = (*QUEUES, *JOBS, *DELIVERIES, *WORKERS, "prune", *COMMANDS)


def record(options: dict[str, Any], data: Any) -> None:
    """Record the result of a subcommand; subcommands that only show something are not recorded."""
    subject, (actor, host) = options["what"], audit.operator()
    # The verbs have the same names as in the admin and over REST.
    verb = options["verb"] if subject == "deliveries" else {"resume-job": "resume"}.get(subject, subject)
    if subject in JOBS:
        for item in data if isinstance(data, list) else [data]:
            audit.record(actor, verb, Job(pk=item["job"]), item["verdict"], host, text=item["reason"])
    elif subject in DELIVERIES:
        for item in data:
            done = item.get("done", item.get("redelivered"))
            row = WebhookDelivery(pk=item["delivery"], job_id=item.get("job"))
            audit.record(actor, verb, row, audit.DONE if done else audit.REFUSED, host, text=item["reason"])
    elif subject in ("pause", "resume") or (subject == "set-webhook" and options["url"] is not None):
        text = data.get("url", "") if subject == "set-webhook" else ""
        audit.record(actor, verb, Queue(name=data["name"]), audit.DONE if data["changed"] else "no change", host, text=text)
    elif subject == "test-webhook":
        audit.record(actor, verb, Queue(name=data["queue"]), audit.DONE, host, text=data["url"])
    elif subject in WORKERS:
        audit.record(actor, verb, f"worker {data['process']} ({data['id']})", audit.DONE if data["changed"] else "no change", host)
    elif subject == "forget":
        audit.record(actor, verb, Queue(name=data["name"]), audit.DONE if data["forgotten"] else "no change", host)
    elif subject == "prune" and not options["dry_run"]:
        audit.record(actor, verb, "jobs", audit.DONE, host, text=f"{data['deleted']} deleted, {data['stale']} marked as stale")


def record_failure(options: dict[str, Any], error: Exception) -> None:
    """Record that a subcommand that changes something has failed."""
    if options["what"] in CHANGES:
        actor, host = audit.operator()
        wanted = str(
            options.get("queue") or options.get("worker") or options.get("jobs") or options.get("job") or options.get("deliveries") or ""
        )
        audit.record(actor, options["what"], wanted, audit.REFUSED, host, text=str(error))
