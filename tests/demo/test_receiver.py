"""The demo's receiver: a signed message is accepted once, any other message is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from demo_project.receiver.models import Message
from jobqueue.webhooks.sending import headers
from tests.webhooks.receivers import SECRET

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("pages")]
BODY = json.dumps(
    {"type": "job.completed", "timestamp": "x", "data": {"job_id": 7, "task": "<script>alert(1)</script>", "status": "SUCCESS"}}
)


def post(client: Client, secret: str = SECRET, body: str = BODY, sent: str = BODY) -> int:
    return int(
        client.post("/webhooks/receive/", sent, content_type="application/json", headers=headers("id-1", body, (secret,))).status_code
    )


def test_a_signed_message_is_accepted_once_and_shown_as_text(client: Client, settings: Any) -> None:
    settings.WEBHOOK_SECRET = SECRET
    assert (post(client), post(client)) == (204, 204)
    assert [(one.message_id, one.type, one.times) for one in Message.objects.all()] == [("id-1", "job.completed", 2)]
    page = client.get("/webhooks/").content.decode()
    assert "&lt;script&gt;" in page
    assert "<script>" not in page


def test_unsigned_or_changed_messages_are_refused(client: Client, settings: Any) -> None:
    settings.WEBHOOK_SECRET = SECRET
    assert post(client, secret=SECRET[:-4] + "AAAA") == 400
    assert post(client, sent=BODY.replace("7", "8")) == 400
    assert client.post("/webhooks/receive/", BODY, content_type="application/json").status_code == 400
    assert client.get("/webhooks/receive/").status_code == 405
    assert not Message.objects.exists()
