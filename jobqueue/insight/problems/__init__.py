"""All problems of the installation, each with what to do about it.

A check is a function of the thresholds that yields problems. Its name is the code of its problems, and it reads a
bounded number of rows. To add one, write it in a module of this package, add its threshold to `Thresholds`, and
name it in `CHECKS`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

from jobqueue import db
from jobqueue.core import masking, repeats
from jobqueue.core.sentences import sentence
from jobqueue.core.texts import exception_summary
from jobqueue.insight.problems import deliveries, fleet, work
from jobqueue.insight.problems.base import PageLink, Problem, Severity, Thresholds, masked, shortened

__all__ = ["CHECKS", "PageLink", "Problem", "Severity", "Thresholds", "problems"]

Check = Callable[[Thresholds], Iterable[Problem]]

CHECKS: Final[tuple[Check, ...]] = (
    fleet.no_worker,
    fleet.stuck_service,
    fleet.failed_module,
    fleet.silent_worker,
    fleet.stuck_threads,
    fleet.stuck_duty,
    work.long_wait,
    work.unserved_queue,
    work.blocked_targets,
    work.failed_jobs,
    work.set_aside_jobs,
    work.stuck_rows,
    work.passed_over_jobs,
    work.unknown_states,
    work.failing_schedules,
    work.schedule_conflicts,
    work.failed_bulk_actions,
    deliveries.failed_webhooks,
    deliveries.retried_webhooks,
    deliveries.late_webhooks,
)


def problems(thresholds: Thresholds | None = None) -> list[Problem]:
    """Return all problems, errors first; raise an error of the database only in an outage or if its tables are missing."""
    given = thresholds or Thresholds()
    current = [problem for check in CHECKS for problem in _checked(check, given)]
    return sorted(current, key=lambda problem: problem.severity != Severity.ERROR)


def _checked(check: Check, given: Thresholds) -> list[Problem]:
    try:
        return shortened(map(masked, check(given)))
    except Exception as error:
        if db.is_outage(error) or db.is_missing_table(error):
            raise
        repeats.log(logging.WARNING, "The check %s of jobqueue's health failed.", check.__name__, exc_info=True, kind=check.__name__)
        text = sentence("The check %(name)s failed: %(error)s", name=check.__name__, error=exception_summary(error, masking.PLAIN))
        return [Problem("check_failed", Severity.ERROR, text, sentence("The log has the traceback."), check.__name__)]
