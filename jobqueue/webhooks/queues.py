"""The receiver of a queue: the URL to which the events of its jobs are sent, unless a job has its own, and the events that are sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Q

from jobqueue import conf
from jobqueue.core import webhook_rules
from jobqueue.core.sentences import sentence
from jobqueue.core.texts import safe_repr
from jobqueue.db import Now
from jobqueue.db.overview import MAX_QUEUES
from jobqueue.exceptions import InvalidOption
from jobqueue.lifecycle.queues import check_name
from jobqueue.models import Job, Queue
from jobqueue.webhooks.guard import literal_problem


@dataclass(frozen=True, slots=True)
class QueueWebhook:
    """The webhook of a queue: its URL and its events; no events means those that end a job."""

    name: str
    changed: bool
    url: str
    events: tuple[str, ...]


def set_queue_webhook(name: str, url: str | None, events: Sequence[str] | None = None) -> QueueWebhook:
    """Set the URL to which the events of a queue's jobs are sent; None removes it.

    `events` selects the events, including those of jobs with their own URL: an empty list means job.completed,
    job.failed and job.canceled; None leaves the selection unchanged. Deliveries that exist already keep their URL.
    """
    check_name(name)
    check_webhook(url, events)
    wanted: dict[str, Any] = {"webhook_url": url or ""}
    if events is not None:
        wanted["webhook_events"] = [event for event in webhook_rules.EVENTS if event in events]
    with Job.objects.database.atomic():
        rows = Queue.objects.current.filter(pk=name)
        if any(wanted.values()):
            # As for pauses: of two concurrent callers, the second waits here for the first, then changes its row.
            Queue.objects.current.bulk_create([Queue(name=name)], ignore_conflicts=True)
        before = rows.select_for_update(no_key=True).values(*wanted).first()
        changed = before is not None and before != wanted
        if changed:
            rows.update(changed_at=Now(), **wanted)
        now = queue_webhook(name)
    return QueueWebhook(name, changed, now.url, now.events)


def queue_webhook(name: str) -> QueueWebhook:
    """Return the URL and the events of a queue's webhook; the URL is empty if there is none."""
    row = Queue.objects.current.filter(pk=name).values_list("webhook_url", "webhook_events").first()
    return _webhook_of(name, *row) if row else QueueWebhook(name, changed=False, url="", events=())


def queue_webhooks() -> dict[str, QueueWebhook]:
    """Return the queues that have a receiver, or a selection of events."""
    decided = Queue.objects.current.filter(~Q(webhook_url="") | ~Q(webhook_events=[]))
    return {row[0]: _webhook_of(*row) for row in decided.values_list("pk", "webhook_url", "webhook_events")[:MAX_QUEUES]}


def check_webhook(url: Any, events: Any) -> None:
    """Reject a URL that cannot be a receiver's, and events that are never sent.

    A name is not resolved here: the worker that sends checks its addresses at each attempt.
    """
    if url is not None and url != "":
        settings = conf.current()
        problem = webhook_rules.url_problem(url, https_only=settings.webhook_https_only)
        if problem := problem or literal_problem(url, settings.webhook_allowed_hosts):
            shown = webhook_rules.shown_url(url) if isinstance(url, str) else url
            raise InvalidOption(
                sentence(
                    "webhook_url is %(url)s: %(problem)s. Use one such as https://example.com/hook.", url=safe_repr(shown), problem=problem
                )
            )
    if events is not None and (problem := webhook_rules.event_problem(events)):
        raise InvalidOption(f"webhook_events is {safe_repr(events)}: {problem}.")


def _webhook_of(name: str, url: str, events: object) -> QueueWebhook:
    known = tuple(event for event in events if isinstance(event, str)) if isinstance(events, list) else ()
    return QueueWebhook(name, changed=False, url=url, events=known)
