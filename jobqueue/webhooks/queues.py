"""The receiver of a queue: where the events of its jobs are sent, unless a job has a URL of its own, and which events are sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Q

from jobqueue import conf
from jobqueue.core import webhook_rules
from jobqueue.core.texts import safe_repr
from jobqueue.db import Now
from jobqueue.exceptions import InvalidOption
from jobqueue.lifecycle.queues import MAX_QUEUES, check_name
from jobqueue.models import Job, Queue
from jobqueue.webhooks.guard import literal_problem


@dataclass(frozen=True, slots=True)
class QueueWebhook:
    """Tell to whom the events of a queue's jobs are sent, and which; no events named means those that end a job."""

    name: str
    changed: bool
    url: str
    events: tuple[str, ...]


def set_queue_webhook(name: str, url: str | None, events: Sequence[str] | None = None) -> QueueWebhook:
    """Send the events of a queue's jobs to a URL; None takes it away.

    `events` says which ones, also for jobs with a URL of their own: none named means job.completed, job.failed and job.canceled, and
    None leaves them as they were. What was told before stays with the receiver that it was meant for.
    """
    check_name(name)
    check_webhook(url, events)
    wanted: dict[str, Any] = {"webhook_url": url or ""}
    if events is not None:
        wanted["webhook_events"] = [one for one in webhook_rules.EVENTS if one in events]
    with Job.objects.database.atomic():
        rows = Queue.objects.current.filter(pk=name)
        if any(wanted.values()):
            # As for pauses: of two who decide at once, the second waits here for the first, and then changes its row.
            Queue.objects.current.bulk_create([Queue(name=name)], ignore_conflicts=True)
        before = rows.select_for_update(no_key=True).values(*wanted).first()
        changed = before is not None and before != wanted
        if changed:
            rows.update(changed_at=Now(), **wanted)
        now = queue_webhook(name)
    return QueueWebhook(name, changed, now.url, now.events)


def queue_webhook(name: str) -> QueueWebhook:
    """Return to whom the events of a queue's jobs are sent now; an empty URL: to nobody."""
    found = Queue.objects.current.filter(pk=name).values_list("webhook_url", "webhook_events").first()
    return _told(name, *found) if found else QueueWebhook(name, changed=False, url="", events=())


def queue_webhooks() -> dict[str, QueueWebhook]:
    """Return the queues that have a receiver, or whose events were chosen."""
    decided = Queue.objects.current.filter(~Q(webhook_url="") | ~Q(webhook_events=[]))
    return {row[0]: _told(*row) for row in decided.values_list("pk", "webhook_url", "webhook_events")[:MAX_QUEUES]}


def check_webhook(url: Any, events: Any) -> None:
    """Refuse a receiver that cannot be one, and events that nobody sends.

    A name is not looked up here: what it means is judged at each attempt, by the worker that sends.
    """
    if url is not None and url != "":
        settings = conf.current()
        problem = webhook_rules.url_problem(url, https_only=settings.webhook_https_only)
        if problem := problem or literal_problem(url, settings.webhook_allowed_hosts):
            shown = webhook_rules.shown_url(url) if isinstance(url, str) else url
            raise InvalidOption(f"webhook_url is {safe_repr(shown)}: {problem}. Use one such as https://example.com/hook.")
    if events is not None and (problem := webhook_rules.event_problem(events)):
        raise InvalidOption(f"webhook_events is {safe_repr(events)}: {problem}.")


def _told(name: str, url: str, events: object) -> QueueWebhook:
    known = tuple(one for one in events if isinstance(one, str)) if isinstance(events, list) else ()
    return QueueWebhook(name, changed=False, url=url, events=known)
