"""The duty of webhooks: it sends the deliveries of the outbox (see ``webhooks/outbox.py``), and retries those that failed."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db.models import QuerySet

from jobqueue import conf
from jobqueue.duties.base import Duty, Report
from jobqueue.exceptions import JobQueueError
from jobqueue.models import Job
from jobqueue.webhooks import outbox
from jobqueue.webhooks.senders import SenderPool

PAUSE_SECONDS = 0.5
# After `QUIET_SECONDS` without a delivery, the question of the duty, which the worker sends every second, wakes its thread.
QUIET_SECONDS, QUIET_PAUSE_SECONDS = 60.0, 30.0
# After a notification, poll closely for this long: deliveries that follow at once come without a notification.
CLOSELY_SECONDS = 1.0
LAND_SECONDS = 0.2
# The pause after a query that found nothing to start: if many deliveries wait for a busy receiver, each query reads all of them.
REST_SECONDS, REST_TIMES, MAX_REST_SECONDS = 0.5, 10, 5.0
WRITE_SECONDS = 2.0

logger = logging.getLogger("jobqueue")


class DeliverWebhooks(Duty):
    """The duty that gives due deliveries to the senders, and writes the results."""

    name = "deliver_webhooks"
    interval_seconds = PAUSE_SECONDS

    def __init__(self) -> None:
        """Prepare the senders."""
        self._senders = SenderPool()
        self._busy_at: float | None = None
        self._poll_at = self._rested_at = 0.0
        self._closely_until = 0.0

    def notify(self) -> None:
        """Poll at once, and closely for `CLOSELY_SECONDS`; if the last query was slow, poll after the pause that it requires."""
        self._closely_until = time.monotonic() + CLOSELY_SECONDS
        self._poll_at = min(self._poll_at, self._rested_at)

    def can_run(self) -> bool:
        """Return whether this process can send webhooks; log the reason if it cannot."""
        try:
            outbox.check_packages()
        except JobQueueError as error:
            logger.info("%s", error)
            return False
        return True

    def questions(self) -> Sequence[QuerySet[Any]]:
        """Return the query of the next time at which a delivery is due."""
        return [outbox.pending().values_list("next_attempt_at")]

    def seconds_to_work(self, now: datetime, answers: Sequence[Any]) -> float | None:
        """Return the seconds to the next delivery."""
        return None if answers[0] is None else (Job.objects.database.moment(answers[0]) - now) / timedelta(seconds=1)

    def run_once(self, now: datetime) -> Report:
        """Start the due deliveries, wait up to `LAND_SECONDS` for responses, and write the results."""
        due = outbox.next_due_seconds()
        begun = self._begin() if due is not None and due <= 0 else 0
        delivered, failed = self._senders.collect(LAND_SECONDS)
        if delivered or failed:
            self._poll_at = 0.0
        if self._senders.in_flight or begun or delivered or failed:
            self._busy_at = time.monotonic()
            return Report(items=delivered, set_aside=failed, again=True)
        longest = QUIET_PAUSE_SECONDS if self._is_quiet else PAUSE_SECONDS
        return Report(pause_seconds=longest if due is None else min(due, longest) if due > 0 else PAUSE_SECONDS)

    @property
    def _is_quiet(self) -> bool:
        now = time.monotonic()
        return not self._senders.in_flight and now > self._closely_until and (self._busy_at is None or now - self._busy_at > QUIET_SECONDS)

    def _begin(self) -> int:
        began = time.monotonic()
        if began < self._poll_at:
            return 0
        begun = self._senders.start_due()
        pause = min(REST_TIMES * (time.monotonic() - began), MAX_REST_SECONDS)
        self._rested_at = began + pause
        self._poll_at = 0.0 if begun else began + max(pause, REST_SECONDS)
        return begun

    @property
    def end_seconds(self) -> float:
        """The seconds for the deliveries in flight and for writing their results."""
        return conf.current().delivery_grace_seconds + WRITE_SECONDS if self._senders.in_flight else super().end_seconds

    def stop_waiting(self) -> None:
        """Stop waiting for the deliveries in flight."""
        self._senders.hurried = True

    def end(self) -> list[str]:
        """Wait for the deliveries in flight; return a name for each receiver that did not respond."""
        if self._senders.in_flight:
            seconds = conf.current().delivery_grace_seconds
            logger.info("Waiting up to %g s for %d deliveries in flight.", seconds, self._senders.in_flight)
            return [f"delivery to {receiver}" for receiver in self._senders.end(seconds)]
        return []
