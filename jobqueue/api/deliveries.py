"""The handlers of the endpoints of webhooks: the deliveries, the verbs on them, and the test of a queue's webhook."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Final

from django.http import HttpRequest

from jobqueue.access import audit, visible
from jobqueue.api import params
from jobqueue.api.params import Given
from jobqueue.api.responses import ApiError
from jobqueue.core.masking import mask_text
from jobqueue.db import Now
from jobqueue.exceptions import InvalidOption, JobQueueError
from jobqueue.models import Job, Queue, WebhookDelivery
from jobqueue.webhooks import redelivery
from jobqueue.webhooks.redelivery import RedeliveryAnswer
from jobqueue.webhooks.shown import as_json, attempts_of
from jobqueue.webhooks.trial import send_test

Reply = tuple[int, dict[str, Any]]
Handler = Callable[[HttpRequest, Any, Given], Reply]
Act = Callable[[int], RedeliveryAnswer]

# For each verb its function, its permission, and its summary.
VERBS: Final[dict[str, tuple[Act, str, str]]] = {
    "redeliver": (redelivery.redeliver, "redeliver", "Send a message again that was delivered or given up."),
    "send-now": (redelivery.send_now, "redeliver", "Make the next attempt of a pending delivery now."),
    "use-current-url": (redelivery.use_current_url, "redeliver", "Send a message to the URL that its job or queue has now."),
    "give-up": (redelivery.give_up, "give_up", "Make no further attempt of a pending delivery."),
}


def list_deliveries(request: HttpRequest, user: Any, given: Given) -> Reply:
    """Return a page of the deliveries, the newest first."""
    wanted = "delivery_status" in request.GET
    status = params.choice(request, "delivery_status", WebhookDelivery.Status.values, "") if wanted else ""
    most, after = params.limit(request), params.after(request)
    rows = _seen(user).defer("body", "facts", "history").order_by("-pk")
    rows = rows.filter(status=status) if status else rows
    found = list((rows if after is None else rows.filter(pk__lt=after))[: most + 1])
    more = len(found) > most
    return 200, {"deliveries": [as_json(row) for row in found[:most]], "more": more, "after": found[most - 1].pk if more else None}


def show_delivery(request: HttpRequest, user: Any, given: Given) -> Reply:
    """Return a delivery with its attempts."""
    delivery = _delivery(user, given)
    return 200, {**as_json(delivery), "history": attempts_of(delivery)}


def act(verb: str) -> Handler:
    """Return the handler of a verb for a delivery."""
    do = VERBS[verb][0]

    def handle(request: HttpRequest, user: Any, given: Given) -> Reply:
        delivery = _delivery(user, given)
        with Job.objects.database.atomic():
            answer = do(delivery.pk)
            verdict, text = (audit.DONE, f"{verb} over REST; it was {delivery.status}.") if answer else (audit.REFUSED, answer.reason)
            audit.record(user, verb, delivery, verdict, audit.address_of(request), text=text)
        if not answer:
            raise ApiError(409, f"{answer.reason[:1].upper()}{answer.reason[1:]}.", reason=answer.reason)
        return 200, {"delivery": delivery.pk, "done": True}

    return handle


def test_webhook(request: HttpRequest, user: Any, given: Given) -> Reply:
    """Send a test message to the receiver of a queue, and return what it responded."""
    name = params.queue(given["queue"])
    try:
        result = send_test(name)
    except InvalidOption as error:
        raise ApiError(409, str(error), reason="the queue has no webhook URL") from error
    except JobQueueError as error:
        raise ApiError(503, str(error)) from error
    audit.record(user, "test-webhook", Queue(name=name), audit.DONE, audit.address_of(request), text=f"Sent a test to {result.url}.")
    return 200, {**asdict(result), "queue": mask_text(result.queue)}


def _seen(user: Any) -> Any:
    return visible.narrow_deliveries(user, WebhookDelivery.objects.current.annotate(now=Now()))


def _delivery(user: Any, given: Given) -> WebhookDelivery:
    text = given["delivery"]
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= 19 else 0
    found: WebhookDelivery | None = _seen(user).filter(pk=number).first() if 0 < number <= params.MAX_ID else None
    if found is None:
        raise ApiError(404, f"There is no delivery {params.shown(text)}.")
    return found
