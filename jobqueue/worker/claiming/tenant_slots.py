"""The slots of tenants (`TENANTS`), read in a thread of their own, since a callable of the project may hang."""

from __future__ import annotations

import logging
import threading

from jobqueue import conf
from jobqueue.core import repeats, texts
from jobqueue.core.forks import guarded
from jobqueue.core.service import ErrorHandler, Service
from jobqueue.db import hygiene

READ_SECONDS = 1.0
FIRST_SECONDS = 2.0
HANG_SECONDS = 10.0

logger = logging.getLogger("jobqueue")


class TenantSlots(Service):
    """A thread that calls the project's `TENANTS` and keeps the last value."""

    name = "reader of TENANTS"
    calls_project_code = True

    def __init__(self, on_error: ErrorHandler | None = None) -> None:
        """Prepare the thread."""
        super().__init__(on_error)
        self._slots: dict[str, int] | None = None
        self._read = threading.Event()
        self._patience = FIRST_SECONDS
        self._reported = False

    def latest(self) -> dict[str, int] | None:
        """Return the last value; None if there is none yet. The first call waits up to `FIRST_SECONDS` for it."""
        patience, self._patience = self._patience, 0.0
        self._read.wait(patience)
        return self._slots

    def turn(self) -> float | None:
        """Call `TENANTS` once and keep its value."""
        try:
            self._slots = guarded(conf.tenant_slots)()
            self._reported = False
        except BaseException as error:  # noqa: BLE001 - code of the project may raise anything; the last value stays
            repeats.log(logging.ERROR, "Cannot read TENANTS; keeping the previous values: %s", texts.exception_summary(error))
        finally:
            hygiene.after_task()
            self._read.set()
        return READ_SECONDS

    def tear_down(self) -> None:
        """Close the connections that the callable has opened."""
        hygiene.close_all()

    def report(self) -> None:
        """Log once that the callable hangs; never wait."""
        if (seconds := self.busy_seconds) >= HANG_SECONDS and not self._reported:
            self._reported = True
            args = ("TENANTS has not returned for %.0f s; keeping the previous values.", seconds)
            threading.Thread(target=logger.error, args=args, name="jobqueue-report", daemon=True).start()
