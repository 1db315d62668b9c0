"""Jobs in trouble for the visitors of the admin: three kinds of errors, a blocked target, a failing webhook, a stuck thread."""

from demo_project.shop.tasks import QUEUE, book_payment, print_labels, ship_order
from jobqueue import enqueue_many, set_queue_webhook
from jobqueue.models import Job

ORDERS = 60
ACCOUNT = "account:7"
WRONG_PATH = "webhooks/recieve/"  # a typing error, to be corrected by the visitor


def seed(url: str) -> None:
    """Enqueue the jobs, unless an earlier run did; the thread is stuck again in each run."""
    print_labels.enqueue()
    if Job.objects.filter(queue=QUEUE, target=ACCOUNT).exists():
        return
    set_queue_webhook(QUEUE, f"{url}{WRONG_PATH}", ["job.failed"])
    enqueue_many(ship_order, (((), {"order_id": number}) for number in range(1, ORDERS + 1)))
    amounts = [-5, 12, 30, 8]
    enqueue_many(
        book_payment.using(target=ACCOUNT), (((), {"order_id": number, "amount": amount}) for number, amount in enumerate(amounts, 1))
    )
