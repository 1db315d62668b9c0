"""The duty of metrics: it samples all queues every `SLOT_SECONDS`, for the graphs of the last hour (see ``insight/metrics.py``)."""

from __future__ import annotations

from datetime import datetime

from jobqueue.duties.base import Duty, Report
from jobqueue.insight.metrics import SLOT_SECONDS, Collector


class CollectMetrics(Duty):
    """The duty that writes samples of all queues."""

    name = "collect_metrics"
    interval_seconds = float(SLOT_SECONDS)
    is_short = True

    def __init__(self) -> None:
        """Start without an earlier sample."""
        self._collector = Collector()

    def run_once(self, now: datetime) -> Report:
        """Take one sample of each queue."""
        return Report(items=self._collector.look(now))
