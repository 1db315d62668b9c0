"""Times that SQLite stores although they do not exist."""

from __future__ import annotations

import pytest
from django.db import connection

from jobqueue.duties.deliver_webhooks import DeliverWebhooks
from jobqueue.duties.promote_due_jobs import PromoteDueJobs
from jobqueue.lifecycle.expire import expire_stale_running_jobs
from jobqueue.models import Job, WebhookDelivery
from tests.duties.asking import seconds_to_work
from tests.factories import DeliveryFactory, JobFactory
from tests.unchecked import unchecked, write

pytestmark = pytest.mark.django_db

SQLITE = (
    *("2026-13-45 99:99:99", "2026-02-30 00:00:00", "2026-01-01 24:00:00", "2026-01-01 10:60:00"),
    *("2026-01-01 00:00:00 ", "2026-01-01junk"),
)
TIMES = SQLITE if connection.vendor == "sqlite" else ("infinity", "-infinity")


@pytest.mark.long
@pytest.mark.parametrize("moment", TIMES)
def test_a_time_that_nobody_can_read_fails_no_duty_and_no_recovery(moment: str) -> None:
    job, delivery, lost = JobFactory(scheduled=True), DeliveryFactory(), JobFactory(expired=True)
    columns = [one.column for one in Job._meta.fields if one.get_internal_type() == "DateTimeField"]
    for column in columns:
        bad = JobFactory(expired=True)
        with unchecked():
            write(Job, bad.pk, column, f"'{moment}'")
    with unchecked():
        write(Job, job.pk, "run_at", f"'{moment}'")
        write(WebhookDelivery, delivery.pk, "next_attempt_at", f"'{moment}'")
    for duty in (PromoteDueJobs(), DeliverWebhooks()):
        assert seconds_to_work(duty) is not None
    assert lost.pk in [one.job_id for one in expire_stale_running_jobs()]
    for column in columns:
        assert all(one.year > 1 for one in Job.objects.values_list(column, flat=True) if one is not None)
