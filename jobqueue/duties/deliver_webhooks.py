"""The duty of webhooks: it sends the deliveries of the outbox (see ``webhooks/outbox.py``), and retries those that failed."""

from __future__ import annotations

import logging
import time
from datetime import datetime

from jobqueue import conf
from jobqueue.duties.base import Duty, Report
from jobqueue.exceptions import JobQueueError
from jobqueue.lifecycle.glance import FRESH_SECONDS, Glances
from jobqueue.webhooks import outbox
from jobqueue.webhooks.senders import SenderPool

PAUSE_SECONDS = 0.5
# After `QUIET_SECONDS` without a delivery, the duty polls less often, since polling is then most of its cost.
QUIET_SECONDS, QUIET_PAUSE_SECONDS = 60.0, 1.0
# After a notification, poll closely for this long: deliveries that follow at once come without a notification.
CLOSELY_SECONDS = 1.0
LAND_SECONDS = 0.2
# The rest after a query that found nothing to start: if many deliveries wait for a busy receiver, each query reads all of them.
REST_SECONDS, REST_TIMES, MAX_REST_SECONDS = 0.5, 10, 5.0
WRITE_SECONDS = 2.0

logger = logging.getLogger("jobqueue")


class DeliverWebhooks(Duty):
    """The duty that gives due deliveries to the senders, and writes the results."""

    name = "deliver_webhooks"
    interval_seconds = PAUSE_SECONDS
    exact_now = False

    def __init__(self, glances: Glances | None = None) -> None:
        """Prepare the senders; `glances` may report that no delivery waits, which saves a query."""
        self._glances = glances if glances is not None else Glances()
        self._glances.tell_of_delivery = lambda: self.wake()  # noqa: PLW0108 - `wake` is set later
        self._crew = SenderPool()
        self._busy_at: float | None = None
        self._look_at = self._rested_at = 0.0
        self._closely_until = 0.0

    def hear(self) -> None:
        """Poll at once, and closely for `CLOSELY_SECONDS`; if the last query was slow, poll after the rest that it requires."""
        self._closely_until = time.monotonic() + CLOSELY_SECONDS
        self._look_at = min(self._look_at, self._rested_at)

    def able(self) -> bool:
        """Return whether this process can send webhooks; log the reason if it cannot."""
        try:
            outbox.check_able()
        except JobQueueError as error:
            logger.info("%s", error)
            return False
        return True

    def run_once(self, now: datetime) -> Report:
        """Start the due deliveries, wait up to `LAND_SECONDS` for responses, and write the results."""
        if self._is_quiet and (glance := self._glances.fresh) is not None and glance.deliver_at is None:
            return Report(pause_seconds=FRESH_SECONDS)  # a glance that finds a delivery wakes this duty; without a fresh glance it polls
        due = outbox.next_due_seconds()
        begun = self._begin() if due is not None and due <= 0 else 0
        good, bad = self._crew.collect(LAND_SECONDS)
        if good or bad:
            self._look_at = 0.0
        if self._crew.in_flight or begun or good or bad:
            self._busy_at = time.monotonic()
            return Report(items=good, set_aside=bad, again=True)
        longest = QUIET_PAUSE_SECONDS if self._is_quiet else PAUSE_SECONDS
        return Report(pause_seconds=longest if due is None else min(due, longest) if due > 0 else PAUSE_SECONDS)

    @property
    def _is_quiet(self) -> bool:
        now = time.monotonic()
        return not self._crew.in_flight and now > self._closely_until and (self._busy_at is None or now - self._busy_at > QUIET_SECONDS)

    def _begin(self) -> int:
        began = time.monotonic()
        if began < self._look_at:
            return 0
        begun = self._crew.start_due()
        rest = min(REST_TIMES * (time.monotonic() - began), MAX_REST_SECONDS)
        self._rested_at = began + rest
        self._look_at = 0.0 if begun else began + max(rest, REST_SECONDS)
        return begun

    @property
    def end_seconds(self) -> float:
        """The seconds for the deliveries in flight and for writing their results."""
        return conf.current().delivery_grace_seconds + WRITE_SECONDS if self._crew.in_flight else super().end_seconds

    def hurry(self) -> None:
        """Stop waiting for the deliveries in flight."""
        self._crew.hurried = True

    def end(self) -> list[str]:
        """Wait for the deliveries in flight; return a name for each receiver that did not respond."""
        if self._crew.in_flight:
            seconds = conf.current().delivery_grace_seconds
            logger.info("Waiting up to %g s for %d deliveries in flight.", seconds, self._crew.in_flight)
            return [f"delivery to {receiver}" for receiver in self._crew.end(seconds)]
        return []
