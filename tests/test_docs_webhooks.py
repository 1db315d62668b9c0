"""The page of webhooks says what the code does."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jobqueue.conf import Settings
from jobqueue.core import event_names, webhook_rules
from jobqueue.models import WebhookDelivery
from jobqueue.webhooks import senders
from tests.webhooks.receivers import SECRET

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "webhooks.md").read_text()
OTHER = SECRET[:-4] + "AAAA"
UNITS = {"s": 1, "min": 60, "h": 3600}


def test_the_delays_are_the_codes() -> None:
    listed = re.findall(r"(\d+) (s|min|h)\b", PAGE.partition("The attempts come after ")[2].partition(", each")[0])
    assert tuple(int(number) * UNITS[unit] for number, unit in listed) == webhook_rules.DELAYS
    assert "by up to 25 % more" in PAGE
    assert webhook_rules.JITTER == 0.25
    assert Settings().webhook_max_attempts == len(webhook_rules.DELAYS) + 1 == 8


def test_the_numbers_are_the_codes() -> None:
    assert f"at most {senders.MAX_PER_ORIGIN} attempts at a time of {senders.MAX_SENDERS}" in PAGE
    for name in ("webhook_max_attempts", "webhook_timeout_seconds", "delivery_grace_seconds"):
        assert f"`{name.upper()}` ({getattr(Settings(), name)})" in PAGE


def test_the_events_are_the_codes() -> None:
    assert f"they are {', '.join(f'`{name}`' for name in event_names.SENT_BY_DEFAULT[:-1])} and `{event_names.SENT_BY_DEFAULT[-1]}`" in PAGE


def test_the_permission_is_there() -> None:
    assert [name for name, _ in WebhookDelivery._meta.permissions] == ["redeliver_webhookdelivery", "give_up_webhookdelivery"]
    assert "`redeliver_webhookdelivery`" in PAGE


def test_the_message_that_is_shown_has_the_fields_of_a_message() -> None:
    from jobqueue.webhooks.outbox import body_of
    from jobqueue.webhooks.sending import headers

    shown = re.search(r'\{"type".*?\}\}', PAGE, re.DOTALL)
    assert shown is not None
    names = re.findall(r'"(\w+)":', shown[0])
    row = WebhookDelivery(event="job.completed", facts=dict.fromkeys(names[3:], 1) | {"at": "x"}, created_at=datetime.now(UTC))
    assert re.findall(r'"(\w+)":', body_of(row)) == names
    assert [name for name in headers("id", "{}", (SECRET,)) if name.startswith("webhook-")] == re.findall(
        r"^(webhook-\w+):", PAGE, re.MULTILINE
    )


def test_the_documented_verification_agrees_with_the_library() -> None:
    from jobqueue.webhooks.sending import headers

    found: dict[str, Any] = {}
    [code] = re.findall(r"```python\n(import base64, hashlib.*?)```", PAGE, re.DOTALL)
    exec(code, found)  # noqa: S102 - what the page shows
    sent = headers("msg_1", "{}", (OTHER, SECRET))
    assert found["is_genuine"](sent, b"{}", SECRET)
    assert not found["is_genuine"](sent, b"{ }", SECRET)
    assert not found["is_genuine"](sent, b"{}", SECRET[:-4] + "BBBB")
    assert not found["is_genuine"]({**sent, "webhook-timestamp": "1"}, b"{}", SECRET)
