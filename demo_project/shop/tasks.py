"""The shop's jobs: some fail, and one does not stop."""

import logging
import threading
from datetime import timedelta

from jobqueue import TaskContext, request_job_cancel, schedule, task

QUEUE = "shop"
FIRST = 20  # before the jobs of the library, so that the troubles are there at the first visit

logger = logging.getLogger(__name__)


@task(queue_name=QUEUE, priority=FIRST)
def ship_order(order_id: int) -> str:
    """Ask the carrier for a label; the carrier responds in time for no order."""
    logger.info("Asking the carrier for a label for order %s", order_id)
    if order_id % 10 == 0:
        raise ValueError(f"order {order_id} has no address")
    if order_id % 3 == 0:
        raise ConnectionRefusedError(f"the warehouse refused the connection for order {order_id}")
    raise TimeoutError(f"the carrier did not respond within 30 s for order {order_id}")


@task(queue_name=QUEUE, priority=FIRST)
def book_payment(order_id: int, amount: int) -> int:
    """Book a payment; an account with a negative amount waits for an operator."""
    if amount < 0:
        raise ValueError(f"order {order_id}: the amount {amount} is negative")
    return amount


@task(queue_name=QUEUE, priority=FIRST, unique_key="print_labels", takes_context=True)
def print_labels(context: TaskContext) -> None:
    """Wait for a printer that never responds, in a call that no request to stop can interrupt."""
    request_job_cancel(context.job_id, outcome="CANCELED")
    threading.Event().wait()


@task(queue_name=QUEUE)
def count_stock(warehouse: str) -> str:
    """Count the stock of a warehouse."""
    logger.info("Counting the stock of %s", warehouse)
    return warehouse


schedule("count-stock", count_stock, interval=timedelta(minutes=5), kwargs={"warehouse": "north"})
schedule("nightly-count", count_stock, cron="0 3 * * *", time_zone="Europe/Berlin", kwargs={"warehouse": "south"})
