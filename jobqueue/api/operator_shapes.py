"""The shapes of the responses about webhooks, as JSON Schema."""

from __future__ import annotations

from typing import Final

from jobqueue.api.shape_parts import COUNT, FLAG, MOMENT, TEXT, UUID, Shape, array, described, nullable, record, ref

DELIVERY_FIELDS: Final[dict[str, Shape]] = {
    "delivery": {"type": "integer"},
    "message_id": {"type": "string", "format": "uuid"},
    "status": {"enum": ["PENDING", "DELIVERED", "FAILED"]},
    "event": TEXT,
    "job": {"type": "integer"},
    "public_id": UUID,
    "queue": TEXT,
    "url": described(TEXT, "The origin and a hash of the URL."),
    "attempts": COUNT,
    "created_at": MOMENT,
    "next_attempt_at": nullable(MOMENT),
    "finished_at": nullable(MOMENT),
    "response_status": nullable(COUNT),
    "error": described(TEXT, "The error of the last attempt."),
}

OPERATOR_SHAPES: Final[dict[str, Shape]] = {
    "Deliveries": record(
        deliveries=described(array(record(**DELIVERY_FIELDS)), "The newest first."),
        more=described(FLAG, "Whether there are more than the limit."),
        after=described(nullable({"type": "integer"}), "The value of `after` for the next page; null if there is none."),
    ),
    "DeliveryDetail": record(**DELIVERY_FIELDS, history=described(array(ref("Attempt")), "The newest attempts, the oldest first.")),
    "Attempt": record(
        attempt=nullable(COUNT),
        at=nullable(TEXT),
        url=described(nullable(TEXT), "The origin and a hash of the URL."),
        status=nullable(COUNT),
        milliseconds=nullable(COUNT),
        error=nullable(TEXT),
        excerpt=described(nullable(TEXT), "The first 2 kB of the response, with masked secrets."),
    ),
    "DeliveryAnswer": record(delivery={"type": "integer"}, done=FLAG),
    "WebhookTest": record(
        queue=TEXT,
        url=described(TEXT, "The origin and a hash of the URL."),
        delivered=described(FLAG, "Whether the receiver returned a 2xx status."),
        signed=FLAG,
        status=nullable(COUNT),
        milliseconds=nullable(COUNT),
        error=TEXT,
        excerpt=described(TEXT, "The first 2 kB of the response, with masked secrets."),
    ),
}
