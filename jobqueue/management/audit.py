"""The audit of the command line: one record for each object that a subcommand has changed, left as it was, or refused to change."""

from __future__ import annotations

from typing import Any

from jobqueue.access import audit
from jobqueue.management.bulk import COMMANDS
from jobqueue.models import Job, Queue, Schedule, WebhookDelivery

QUEUES, JOBS, DELIVERIES = (
    ("pause", "resume", "set-webhook", "test-webhook", "forget"),
    ("cancel", "resume-job", "rerun", "clear-target"),
    ("redeliver", "deliveries"),
)
WORKERS = ("drain", "undrain")
SCHEDULES = {"run-schedule": "run_now", "enable-schedule": "enable", "disable-schedule": "disable"}
NAMED_BY = ("queue", "schedule", "target", "worker", "jobs", "job", "deliveries")
CHANGES = (*QUEUES, *JOBS, *DELIVERIES, *WORKERS, *SCHEDULES, "prune", *COMMANDS)


def record(options: dict[str, Any], data: Any) -> None:
    """Record the result of a subcommand; subcommands that only show something are not recorded."""
    subject, (actor, host) = options["what"], audit.operator()
    # The verbs have the same names as in the admin and over REST.
    verb = options["verb"] if subject == "deliveries" else {"resume-job": "resume", "clear-target": "cancel"}.get(subject, subject)
    if subject in JOBS:
        for item in data if isinstance(data, list) else [data]:
            audit.record(actor, verb, Job(pk=item["job"]), item["verdict"], host, text=item["reason"])
    elif subject in DELIVERIES:
        for item in data:
            done = item.get("done", item.get("redelivered"))
            row = WebhookDelivery(pk=item["delivery"], job_id=item.get("job"))
            audit.record(actor, verb, row, audit.DONE if done else audit.REFUSED, host, text=item["reason"])
    elif subject in QUEUES:
        _record_queue(options, data, actor, host)
    elif subject in WORKERS:
        audit.record(actor, verb, f"worker {data['process']} ({data['id']})", audit.DONE if data["changed"] else "no change", host)
    elif subject in SCHEDULES:
        audit.record(actor, SCHEDULES[subject], Schedule(pk=data["id"], name=data["schedule"]), data["verdict"], host, text=data["reason"])
    elif subject == "prune" and not options["dry_run"]:
        audit.record(actor, verb, "jobs", audit.DONE, host, text=f"{data['deleted']} deleted, {data['stale']} marked as stale")


def _record_queue(options: dict[str, Any], data: Any, actor: str, host: str) -> None:
    subject, is_changed, text = options["what"], True, ""
    if subject == "test-webhook":
        text = data["url"]
    elif subject == "set-webhook":
        if options["url"] is None:  # it was only shown
            return
        is_changed, text = data["changed"], data.get("url", "")
    else:
        is_changed = data["forgotten"] if subject == "forget" else data["changed"]
    name = data["queue"] if subject == "test-webhook" else data["name"]
    audit.record(actor, subject, Queue(name=name), audit.DONE if is_changed else "no change", host, text=text)


def record_failure(options: dict[str, Any], error: Exception) -> None:
    """Record that a subcommand that changes something has failed."""
    if options["what"] in CHANGES:
        actor, host = audit.operator()
        wanted = str(next((options[name] for name in NAMED_BY if options.get(name)), ""))
        audit.record(actor, options["what"], wanted, audit.REFUSED, host, text=str(error))
