"""Rows of a shop's queue."""

from datetime import timedelta
from typing import Any
from uuid import UUID

from django.utils import timezone

from jobqueue.models import Job, Worker
from tests.factories import JobFactory, WorkerFactory

WORKERS = [UUID(int=0x5B1C << 112 | number) for number in range(1, 4)]
TRACEBACK = """Traceback (most recent call last):
  File "/srv/shop/payments/tasks.py", line 84, in capture_payment
    answer = gateway.capture(order.payment_id, token=api_token)
  File "/srv/shop/payments/gateway.py", line 212, in capture
    raise GatewayError(f"card declined, Authorization: Bearer {token}")
shop.payments.gateway.GatewayError: card declined, Authorization: Bearer sk_live_4eC39HqLyjWDarjtT1zdp7dc"""


def fill() -> Job:
    """Make the rows; return the one in ERROR, which has the fullest page."""
    now = timezone.now()

    def ago(**delta: float) -> Any:
        return now - timedelta(**delta)

    WorkerFactory(id=WORKERS[0], host="web-1", pid=4121, running=2, started_at=ago(hours=7), queues=["default", "mail"])
    WorkerFactory(id=WORKERS[1], host="batch-1", pid=977, running=2, slots=16, started_at=ago(days=2, hours=5))
    WorkerFactory(
        id=WORKERS[2], host="batch-2", pid=1013, stuck=1, state=Worker.State.DRAINING, heartbeat_at=ago(minutes=4), started_at=ago(days=2)
    )
    web, batch, gone = map(str, WORKERS)

    def ended(task: str, queue: str, seconds: float, when: float, **values: Any) -> Job:
        times = {"created_at": ago(seconds=when + seconds + 1.2), "enqueued_at": ago(seconds=when + seconds + 0.4)}
        times |= {
            "started_at": ago(seconds=when + seconds),
            "first_started_at": ago(seconds=when + seconds),
            "finished_at": ago(seconds=when),
        }
        options = {"success": "status" not in values, "attempt": 1, "lease_token": 1, "worker_ids": [web]} | times | values
        made: Job = JobFactory(task=task, queue=queue, **options)
        return made

    def running(task: str, queue: str, seconds: float, owner: str, **values: Any) -> Job:
        times = {"created_at": ago(seconds=seconds + 3), "enqueued_at": ago(seconds=seconds + 2), "started_at": ago(seconds=seconds)}
        made: Job = JobFactory(task=task, queue=queue, running=True, lease_owner=owner, **times, **values)
        return made

    for number in range(4):
        ended(
            "shop.mail.tasks.send_receipt", "mail", 0.21 + number / 10, 400 - 60 * number, args=[f"customer{number}@example.org"], result=1
        )
    ended(
        "shop.catalogue.tasks.resize_images", "images", 12.4, 180, args=[311], result={"sizes": ["thumb", "card", "full"], "bytes": 183_201}
    )
    ended(
        "shop.reports.tasks.export_ledger",
        "reports",
        44.0,
        80,
        status="CANCELED",
        progress=38,
        message="Job was canceled by user",
        worker_ids=[batch],
    )
    JobFactory(
        task="shop.search.tasks.rebuild_index", queue="reports", paused=True, attempt=1, progress=61, worker_ids=[batch], priority=-10
    )
    error = ended(
        "shop.payments.tasks.capture_payment",
        "default",
        1.9,
        95,
        status="ERROR",
        attempt=3,
        failures=3,
        max_attempts=3,
        priority=20,
        args=[88121],
        kwargs={
            "api_token": "sk_live_4eC39HqLyjWDarjtT1zdp7dc",
            "currency": "EUR",
            "lines": [{"sku": "A-7", "count": 2}, {"sku": "B-3", "count": 1}],
        },
        metadata={"requested_by": "checkout", "trace": "00-4bf92f3577b34da6-01"},
        message="GatewayError: card declined, Authorization: Bearer sk_live_4eC39HqLyjWDarjtT1zdp7dc",
        history=[_failed(attempt, web, ago(seconds=95 + 60 * (3 - attempt))) for attempt in (1, 2, 3)],
    )
    JobFactory(
        task="shop.stock.tasks.sync_warehouse",
        queue="sync",
        waiting_for_retry=True,
        run_at=now + timedelta(seconds=48),
        max_attempts=5,
        attempt=2,
        failures=2,
        worker_ids=[gone],
        message="ConnectionResetError: warehouse-3 closed the connection",
    )
    JobFactory(task="shop.reports.tasks.month_end", queue="reports", scheduled=True, run_at=now + timedelta(hours=3, minutes=12))
    running("shop.reports.tasks.build_report", "reports", 192, batch, progress=64, message="page 128 of 200")
    running("shop.video.tasks.transcode", "images", 610, batch, progress=22, attempt=2, crashes=1, max_attempts=3)
    running("shop.search.tasks.reindex_products", "sync", 31, web, progress=80, cancel_requested=True, cancel_outcome="PAUSED")
    running("shop.mail.tasks.send_newsletter", "mail", 5, web, progress=7, message="3,412 of 48,000 readers", priority=-5)
    JobFactory(task="shop.mail.tasks.send_receipt", queue="mail", running=True, lease_owner=web, args=["customer9@example.org"])
    for number in range(2):
        JobFactory(task="shop.catalogue.tasks.resize_images", queue="images", args=[number], enqueued_at=ago(seconds=9 - number))
    JobFactory(task="shop.payments.tasks.capture_payment", priority=20, args=[88130], max_attempts=3, enqueued_at=ago(seconds=0.4))
    return error


def _failed(attempt: int, worker: str, end: Any) -> dict[str, Any]:
    return {
        "attempt": attempt,
        "worker": worker,
        "outcome": "ERROR" if attempt == 3 else "RETRY",
        "started_at": (end - timedelta(seconds=1.9)).isoformat(),
        "finished_at": end.isoformat(),
        "exception": "shop.payments.gateway.GatewayError",
        "message": TRACEBACK.rpartition("\n")[2],
        "traceback": TRACEBACK,
    }
