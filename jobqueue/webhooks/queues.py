"""The webhook of a queue: where its jobs' events are sent, and which."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models.functions import Now

from jobqueue import conf, webhook_rules
from jobqueue.exceptions import InvalidOption
from jobqueue.lifecycle.queues import check_name
from jobqueue.models import Job, Queue
from jobqueue.webhooks.guard import literal_problem


def set_webhook(name: str, url: str, events: Sequence[str]) -> bool:
    """Let the events of a queue's jobs be sent to a URL ("": to none); no event named: those of the end. Return whether that is new."""
    check_name(name)
    if url and (problem := webhook_rules.url_problem(url) or literal_problem(url, conf.current().webhook_allowed_hosts)):
        raise InvalidOption(f"webhook_url is {webhook_rules.shown_url(url)[:200]!r}: {problem}. Use one such as https://example.com/hook.")
    if problem := webhook_rules.event_problem(events):
        raise InvalidOption(f"webhook_events: {problem}.")
    chosen = [one for one in webhook_rules.EVENTS if one in events]
    with Job.objects.database.atomic():
        Queue.objects.current.bulk_create([Queue(name=name)], ignore_conflicts=True)
        rows = Queue.objects.current.filter(pk=name)
        before = rows.select_for_update(no_key=True).values_list("webhook_url", "webhook_events").first()
        if before == (url, chosen):
            return False
        rows.update(webhook_url=url, webhook_events=chosen, changed_at=Now())
    return True
