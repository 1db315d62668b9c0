"""Mark ended jobs as stale and delete them, as the settings say (see ``lifecycle/retention.py``)."""

from __future__ import annotations

from datetime import datetime

from jobqueue import conf
from jobqueue.duties.base import Duty, Report
from jobqueue.lifecycle.retention import Sweep, by_settings


class ApplyRetention(Duty):
    """Apply `STALE_AFTER`, `DELETE_AFTER` and `QUEUE_RETENTION`, about a second at a time."""

    name = "apply_retention"
    interval_seconds = 60.0

    def __init__(self) -> None:
        """Start from the oldest job."""
        self._sweep: Sweep | None = None

    def able(self) -> bool:
        """Return whether anything is configured."""
        return any(conf.retention())

    def run_once(self, now: datetime) -> Report:
        """Go on where the last run ended; ask for the next one at once where there is more."""
        if self._sweep is None:
            self._sweep = by_settings()
        done = self._sweep.run()
        return Report(items=done.deleted + done.stale, set_aside=done.set_aside, again=done.more)
