"""The receiver of webhooks: it rejects unsigned messages, stores each message once, and answers immediately."""

import json

from django.conf import settings
from django.db.models import F
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST
from standardwebhooks import Webhook, WebhookVerificationError

from demo_project.receiver.models import Message

MAX_SHOWN = 50


@csrf_exempt  # no browser sends these requests; the signature authenticates the sender
@require_POST
def receive(request: HttpRequest) -> HttpResponse:
    """Store one message; answer 400 if its signature is wrong."""
    try:
        told = Webhook(settings.WEBHOOK_SECRET).verify(request.body, dict(request.headers))
    except (WebhookVerificationError, ValueError):
        return HttpResponse("The signature is invalid.\n", status=400, content_type="text/plain")
    made, created = Message.objects.get_or_create(
        message_id=request.headers["webhook-id"], defaults={"type": told["type"], "body": request.body.decode()}
    )
    if not created:  # it was sent again: its work is done already
        Message.objects.filter(pk=made.pk).update(times=F("times") + 1)
    return HttpResponse(status=204)


def messages(request: HttpRequest) -> HttpResponse:
    """Show the received messages."""
    found = [(message, json.loads(message.body)) for message in Message.objects.all()[:MAX_SHOWN]]
    return render(request, "receiver/messages.html", {"messages": found, "number": Message.objects.count()})
