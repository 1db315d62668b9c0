"""The audit of the command line: one record for each object that a subcommand has changed, left as it was, or refused to change."""

from __future__ import annotations

from typing import Any

from jobqueue.access import audit

QUEUES, JOBS, DELIVERIES = ("pause", "resume", "set-webhook", "forget"), ("cancel", "resume-job"), ("redeliver", "deliveries")
CHANGES = (*QUEUES, *JOBS, *DELIVERIES, "prune")


def record(options: dict[str, Any], data: Any) -> None:
    """Record the result of a subcommand; subcommands that only show something are not recorded."""
    what, (actor, host) = options["what"], audit.operator()
    verb = f"{what} {options['verb']}" if what == "deliveries" else what
    if what in JOBS:
        for one in data:
            audit.record(actor, verb, f"job {one['job']}", one["verdict"], host, text=one["reason"])
    elif what in DELIVERIES:
        for one in data:
            done = one.get("done", one.get("redelivered"))
            audit.record(actor, verb, f"delivery {one['delivery']}", audit.DONE if done else audit.REFUSED, host, text=one["reason"])
    elif what in ("pause", "resume") or (what == "set-webhook" and options["url"] is not None):
        text = data.get("url", "") if what == "set-webhook" else ""
        audit.record(actor, verb, f"queue {data['name']}", audit.DONE if data["changed"] else "no change", host, text=text)
    elif what == "forget":
        audit.record(actor, verb, f"queue {data['name']}", audit.DONE if data["forgotten"] else "no change", host)
    elif what == "prune" and not options["dry_run"]:
        audit.record(actor, verb, "jobs", audit.DONE, host, text=f"{data['deleted']} deleted, {data['stale']} marked as stale")


def record_failure(options: dict[str, Any], error: Exception) -> None:
    """Record that a subcommand that changes something has failed."""
    if options["what"] in CHANGES:
        actor, host = audit.operator()
        wanted = str(options.get("queue") or options.get("jobs") or options.get("deliveries") or "")
        audit.record(actor, options["what"], wanted, audit.REFUSED, host, text=str(error))
