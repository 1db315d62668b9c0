"""Look at all queues each ten seconds, for the graphs of the last hour (see ``insight/metrics.py``)."""

from __future__ import annotations

from datetime import datetime

from jobqueue.duties.base import Duty, Report
from jobqueue.insight.metrics import SLOT_SECONDS, Collector


class CollectMetrics(Duty):
    """Write a sample of each queue."""

    name = "collect_metrics"
    interval_seconds = float(SLOT_SECONDS)

    def __init__(self) -> None:
        """Start without a look before."""
        self._collector = Collector()

    def run_once(self, now: datetime) -> Report:
        """Look once."""
        return Report(items=self._collector.look(now))
