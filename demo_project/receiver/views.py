"""Receive webhooks: believe nothing that is not signed, take each message once, answer at once."""

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


@csrf_exempt  # no browser sends these; the signature says who does
@require_POST
def receive(request: HttpRequest) -> HttpResponse:
    """Take one message; 400 for one whose signature does not hold."""
    try:
        told = Webhook(settings.WEBHOOK_SECRET).verify(request.body, dict(request.headers))
    except (WebhookVerificationError, ValueError):
        return HttpResponse("The signature does not hold.\n", status=400, content_type="text/plain")
    made, created = Message.objects.get_or_create(
        message_id=request.headers["webhook-id"], defaults={"type": told["type"], "body": request.body.decode()}
    )
    if not created:  # it was sent again: the work for it has been done
        Message.objects.filter(pk=made.pk).update(times=F("times") + 1)
    return HttpResponse(status=204)


def messages(request: HttpRequest) -> HttpResponse:
    """Show what has arrived."""
    found = [(message, json.loads(message.body)) for message in Message.objects.all()[:MAX_SHOWN]]
    return render(request, "receiver/messages.html", {"messages": found, "number": Message.objects.count()})
