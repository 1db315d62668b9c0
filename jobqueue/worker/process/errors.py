"""The log of failed turns of services (see `jobqueue.core.service`)."""

from __future__ import annotations

import logging
import time

from jobqueue.core.service import Named
from jobqueue.worker.base import is_outage

PAUSE_SECONDS = 10.0

logger = logging.getLogger("jobqueue")


class ErrorLog:
    """An error handler that logs at most one failed turn per service in `PAUSE_SECONDS`, with the traceback unless it is an outage."""

    def __init__(self) -> None:
        """Start with no errors logged."""
        self._logged_at: dict[str, float] = {}

    def __call__(self, service: Named, error: BaseException, failures: int) -> None:
        """Log a failed turn, unless one of the same service was logged less than `PAUSE_SECONDS` ago."""
        now = time.monotonic()
        if now - self._logged_at.get(service.name, -PAUSE_SECONDS) < PAUSE_SECONDS:
            return
        self._logged_at[service.name] = now
        if is_outage(error):
            logger.warning("The %s cannot reach the database (try %d): %s", service.name, failures, " ".join(str(error).split()))
        else:
            logger.error("The %s failed (try %d) and continues.", service.name, failures, exc_info=error)
