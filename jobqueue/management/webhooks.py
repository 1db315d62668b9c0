"""The subcommands ``webhooks``, ``redeliver``, ``deliveries``, ``set-webhook`` and ``test-webhook`` of ``manage.py jobqueue``."""

from __future__ import annotations

from argparse import ArgumentParser
from dataclasses import asdict
from datetime import datetime
from typing import Any

from django.core.management.base import CommandError

from jobqueue.core import webhook_rules
from jobqueue.core.masking import PLAIN
from jobqueue.core.texts import shorten
from jobqueue.management import tables
from jobqueue.models import WebhookDelivery
from jobqueue.webhooks.queues import queue_webhook, set_queue_webhook
from jobqueue.webhooks.redelivery import find, give_up, newest, redeliver, send_now, use_current_url
from jobqueue.webhooks.shown import as_json, attempts_of
from jobqueue.webhooks.trial import send_test

MAX_SHOWN = 50
MAX_TEXT_BYTES = 200
MAX_ID = 2**63 - 1
COLUMNS = ("delivery", "status", "event", "job", "receiver", "attempts", "next attempt", "last response")
ATTEMPT_COLUMNS = ("attempt", "at (UTC)", "receiver", "status", "ms", "error", "response")
VERBS = {
    "send-now": (send_now, "sent now"),
    "give-up": (give_up, "given up"),
    "use-current-url": (use_current_url, "sent to the current URL"),
}
Status = WebhookDelivery.Status
Answer = tuple[Any, list[str], bool]


def add_webhooks_arguments(parser: ArgumentParser) -> None:
    """Add the options of ``webhooks``."""
    parser.add_argument("delivery", nargs="?", metavar="DELIVERY_ID", help="show the attempts of this delivery")
    parser.add_argument("--status", help=f"only those in this state: {', '.join(Status.values)}")


def add_redeliver_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of ``redeliver``."""
    parser.add_argument("deliveries", nargs="+", metavar="DELIVERY_ID", help="the number of a delivery")


def add_deliveries_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of ``deliveries``."""
    parser.add_argument("verb", choices=[*VERBS], metavar="VERB", help=f"what to do: {', '.join(VERBS)}")
    add_redeliver_arguments(parser)


def add_set_webhook_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of ``set-webhook``."""
    parser.add_argument("queue", help="the name of the queue")
    parser.add_argument(
        "url",
        nargs="?",
        help="the URL to which events of its jobs are sent; empty text: send none; if it is left out: show the current one",
    )
    names = ", ".join(webhook_rules.EVENTS)
    parser.add_argument(
        "--event", action="append", help=f"an event to send: {names}; may be repeated; empty text: completed, failed and canceled"
    )


def webhooks(options: dict[str, Any]) -> Answer:
    """Show the newest deliveries, or one delivery with its attempts."""
    if options["delivery"] is not None:
        return _one(_number(options["delivery"]))
    status = (options["status"] or "").upper()
    if status and status not in Status.values:
        raise CommandError(f"--status is {options['status'][:80]!r}; it must be one of {', '.join(Status.values)}.")
    deliveries = newest(MAX_SHOWN, status)
    lines = ["Webhook deliveries", *tables.table(COLUMNS, [_cells(delivery) for delivery in deliveries])]
    return [as_json(delivery) for delivery in deliveries], lines, True


def _one(delivery_id: int) -> Answer:
    delivery = find(delivery_id)
    if delivery is None:
        raise CommandError(f"There is no delivery {delivery_id}. 'jobqueue webhooks' shows the numbers.")
    attempts = attempts_of(delivery)
    lines = [
        *tables.table(COLUMNS, [_cells(delivery)]),
        "",
        "Attempts",
        *tables.table(ATTEMPT_COLUMNS, [_attempt(one) for one in attempts]),
    ]
    return {**as_json(delivery), "history": attempts}, lines, True


def _attempt(entry: dict[str, Any]) -> tuple[str, ...]:
    texts = {name: "-" if value in (None, "") else str(value) for name, value in entry.items()}
    brief = shorten(" ".join(texts["excerpt"].split()), MAX_TEXT_BYTES)
    at = (entry["at"] or "-")[:19].replace("T", " ")
    return (texts["attempt"], at, texts["url"], texts["status"], texts["milliseconds"], shorten(texts["error"], MAX_TEXT_BYTES), brief)


def redeliver_all(options: dict[str, Any]) -> Answer:
    """Send deliveries again; the last value returned is False if one was refused."""
    data, lines = [], []
    for delivery_id in [_number(text) for text in options["deliveries"]]:
        answer = redeliver(delivery_id)
        data.append({"delivery": delivery_id, "redelivered": answer.done, "reason": answer.reason})
        lines.append(f"Delivery {delivery_id} is {'sent again.' if answer else f'not sent again: {answer.reason}.'}")
    return data, lines, all(item["redelivered"] for item in data)


def act_on_deliveries(options: dict[str, Any]) -> Answer:
    """Apply a verb to deliveries; the last value returned is False if one was refused."""
    act, done = VERBS[options["verb"]]
    data, lines = [], []
    for delivery_id in [_number(text) for text in options["deliveries"]]:
        answer = act(delivery_id)
        data.append({"delivery": delivery_id, "done": answer.done, "reason": answer.reason})
        lines.append(f"Delivery {delivery_id} is {done if answer else f'not {done}: {answer.reason}'}.")
    return data, lines, all(item["done"] for item in data)


def set_webhook(options: dict[str, Any]) -> Answer:
    """Set or show the URL that the events of a queue are sent to."""
    events = None if options["event"] is None else [name for name in options["event"] if name]
    if options["url"] is None and events is not None:
        raise CommandError("--event needs a URL: add it after the queue.")
    name, url = options["queue"], options["url"]
    answer = queue_webhook(name) if url is None else set_queue_webhook(name, url, events)
    receiver = webhook_rules.shown_url(answer.url)
    data = {"name": answer.name, "changed": answer.changed, "url": receiver, "events": list(answer.events)}
    noun = f"events {', '.join(answer.events)}" if answer.events else "events"
    same = "" if answer.changed or url is None else " (no change)"
    text = f"The {noun} of queue {answer.name!r} are sent to {receiver}" if answer.url else f"Queue {answer.name!r} sends no events"
    return data, [f"{text}{same}."], True


def test_webhook(options: dict[str, Any]) -> Answer:
    """Send a test message to the receiver of a queue; the last value returned is False if it was not accepted."""
    result = send_test(options["queue"])
    signed = "signed" if result.signed else "not signed"
    took = "" if result.milliseconds is None else f" in {result.milliseconds:,} ms"
    answer = f"status {result.status}" if result.status is not None else "no response"
    lines = [f"A test ({signed}) was sent to {result.url}: {answer}{took}.", *([result.error] if result.error else [])]
    return asdict(result), [*lines, *([f"The response begins: {result.excerpt}"] if result.excerpt else [])], result.delivered


def _number(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= 19 else 0
    if not 0 < number <= MAX_ID:
        rule = f"it must be a whole number from 1 to {MAX_ID}"
        raise CommandError(f"DELIVERY_ID is {text[:80]!r}; {rule}. 'jobqueue webhooks' shows the numbers.")
    return number


def _text(value: str) -> str:
    return PLAIN.cut(value, MAX_TEXT_BYTES)


def _cells(delivery: WebhookDelivery) -> tuple[str, ...]:
    now: datetime = delivery.now  # type: ignore[attr-defined]  # annotated by the query
    ahead = (delivery.next_attempt_at - now).total_seconds()
    following = "-" if delivery.status != Status.PENDING else f"in {ahead:.0f} s" if ahead > 0 else "now"
    response = " ".join(part for part in (str(delivery.response_status or ""), _text(delivery.error).partition("\n")[0]) if part) or "-"
    return (
        str(delivery.pk),
        delivery.status,
        delivery.event,
        str(delivery.job_id),
        shorten(webhook_rules.shown_url(delivery.url), MAX_TEXT_BYTES),
        str(delivery.attempts),
        following,
        response,
    )
