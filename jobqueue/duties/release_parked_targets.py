"""Release: lines of targets go on that raw SQL has left behind a target that is free."""

from __future__ import annotations

from datetime import datetime

from jobqueue.duties.base import Duty, Report
from jobqueue.lifecycle.release import release_parked_targets

MOST_TARGETS = 20_000


class ReleaseParkedTargets(Duty):
    """Repair the lines every 5 s."""

    name = "release_parked_targets"
    interval_seconds = 5.0
    lets_jobs_in = True

    def run_once(self, now: datetime) -> Report:
        """Look at the targets that have parked jobs, and let the next go where nobody holds or blocks one."""
        return Report(release_parked_targets(MOST_TARGETS))
