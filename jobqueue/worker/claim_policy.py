"""The claim policy of a process: which queues and tenants it may claim for. It reads this again every second, or when notified."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable

from django.db.models import BooleanField, ExpressionWrapper

from jobqueue import conf
from jobqueue.core import queue_rules, repeats
from jobqueue.db import Scope, claims
from jobqueue.exceptions import is_for_the_process
from jobqueue.lifecycle.limits import Limits
from jobqueue.lifecycle.queues import end_pauses
from jobqueue.managers.queues import OVER
from jobqueue.models import Job, Queue

READ_SECONDS = 1.0
NAMES_SECONDS = 0.1  # the interval at which the claimer queries for other tenants
MAX_QUEUES = 1000

logger = logging.getLogger("jobqueue")


class ClaimPolicy:
    """The queues in which a tenant's jobs may be claimed, and the limits that apply."""

    def __init__(
        self,
        queues: tuple[str, ...],
        max_running: int | None,
        set_tenants: Callable[[dict[str, int]], None],
        tenant_slots: Callable[[], dict[str, int] | None] = conf.tenant_slots,
    ) -> None:
        """Prepare; `queues` are the patterns of the queues that are served, and `set_tenants` receives the slots of each tenant.

        `tenant_slots` returns these slots, or None if they are not known.
        """
        self.served, self._max_running, self._set_tenants = queue_rules.parse(queues), max_running, set_tenants
        self._tenant_slots = tenant_slots
        self.is_drained = False
        self.paused: frozenset[str] = frozenset()
        self.limits = Limits(max_running)
        self._read_at: float | None = None
        self._queues_read_at: float | None = None
        self._reading = threading.Lock()  # the dispatcher and the finisher read: an older result must not replace a newer one
        self._after: dict[str, str] = {}  # for tenants with more queues than a claim can name: the last queue that a claim has named
        self._names: dict[str, tuple[float, tuple[str, ...]]] = {}  # for each tenant: when its served queues were read, and their names

    def invalidate(self) -> None:
        """Read everything again at the next refresh."""
        self._read_at = self._queues_read_at = None
        self._names.clear()

    def forget_names(self, tenant: str) -> None:
        """Read again in which queues a tenant has jobs: there is new work, or a claim found none."""
        self._names.pop(tenant, None)

    @property
    def age(self) -> float:
        """The seconds since the last read; infinite if a new read was requested."""
        return math.inf if self._read_at is None else time.monotonic() - self._read_at

    def drain(self, *, drained: bool) -> bool:
        """Claim nothing from now on, or, if `drained` is False, claim again; return whether this changed anything."""
        changed, self.is_drained = drained != self.is_drained, drained
        if changed:
            logger.info("This worker is drained: it starts no more jobs." if drained else "This worker is no longer drained.")
        return changed

    @property
    def is_selective(self) -> bool:
        """Whether there may be queues from which this process claims nothing."""
        return bool(self.is_drained or not self.served.is_all or self.paused or self.limits.queues)

    def is_open(self, queue: str) -> bool:
        """Return whether this process serves a queue that is not paused and whose limit is not 0."""
        return not self.is_drained and queue not in self.paused and self.served.matches(queue) and self.limits.queues.get(queue) != 0

    def refresh(self) -> None:
        """Read the rows of queues and the slots of tenants if that is due."""
        now = time.monotonic()
        if self._read_at is not None and now - self._read_at < READ_SECONDS:
            return
        self._read_at = now  # before the read: what changes during the read is read again
        try:
            self._read()
        except BaseException:
            self._read_at = None
            raise

    def refresh_queues(self) -> None:
        """Read the rows of queues if that is due; from any thread. Only the dispatcher, which has the lanes, reads the slots of tenants."""
        now = time.monotonic()
        if self._queues_read_at is None or now - self._queues_read_at >= READ_SECONDS:
            self._read_queues()

    def _read(self) -> None:
        self._read_queues()
        try:
            if (slots := self._tenant_slots()) is not None:
                self._set_tenants(slots)
        except BaseException as error:  # code of the project; the last slots stay, and claims continue
            if is_for_the_process(error):
                raise
            text = "Cannot read TENANTS; keeping the previous values: %s"
            repeats.log(logging.ERROR, text, str(error) or repr(error), kind=str(error))

    def _read_queues(self) -> None:
        with self._reading:
            self._queues_read_at = time.monotonic()
            try:
                self._take_queues()
            except BaseException:
                self._queues_read_at = None
                raise

    def _take_queues(self) -> None:
        special = Queue.objects.current.special().annotate(over=ExpressionWrapper(OVER, BooleanField()))
        special_rows = list(special.values_list("name", "paused", "max_running", "over"))
        if any(row[3] for row in special_rows):
            end_pauses()
        rows = [row[:3] for row in special_rows]
        self.paused = frozenset(name for name, paused, _, over in special_rows if paused and not over)
        self.limits = Limits(self._max_running, {name: queue_rules.limit_of(most) for name, _, most in rows if most is not None})

    @property
    def no_hand_over_queues(self) -> tuple[str, ...]:
        """The queues in which no job may be handed over, because they are paused or limited."""
        return (*self.paused, *self.limits.queues)

    def scope(self, tenant: str) -> Scope | None:
        """Return the scope of a claim for a tenant; None if all of the tenant's queues are paused, or the worker is drained."""
        if self.is_drained:
            return None
        names = self.served.names
        if self.served.has_patterns:
            names = self._named_by_patterns(tenant)
        elif not self.paused and not self.limits.queues:
            return Scope(tenant, names)
        # By name: a claim over all queues would read the jobs that a paused or an excluded queue holds.
        opened = tuple(name for name in names if name not in self.paused) if not self.served.is_all else self._queued_in(tenant)
        return Scope(tenant, opened) if opened else None

    def _named_by_patterns(self, tenant: str) -> tuple[str, ...]:
        """Return the served queues in which a tenant has QUEUED jobs, at most `NAMES_SECONDS` old, to save a query for each claim."""
        now = time.monotonic()
        if (known := self._names.get(tenant)) is None or now - known[0] >= NAMES_SECONDS:
            self._names[tenant] = known = (now, self._queued_in(tenant))
        return known[1]

    def _queued_in(self, tenant: str) -> tuple[str, ...]:
        """Return open, served queues in which a tenant has QUEUED jobs; if there are more than `MAX_QUEUES`, the next ones at each call."""
        database, after = Job.objects.database, self._after.pop(tenant, "")
        names = claims.queued_queues(database, MAX_QUEUES, tenant, after, self.paused, self.served)
        if after and len(names) < MAX_QUEUES:  # the rest from the beginning; those after `after` are in the list
            names += [
                name
                for name in claims.queued_queues(database, MAX_QUEUES - len(names), tenant, "", self.paused, self.served)
                if name <= after
            ]
        if len(names) == MAX_QUEUES:
            self._after[tenant] = names[-1]
        return tuple(names)

    def is_partial(self, scope: Scope) -> bool:
        """Return whether a scope has only a part of the tenant's queues, so that the next scope has other queues."""
        return scope.tenant in self._after

    @property
    def served_limits(self) -> Limits:
        """The limits that matter for the queues that this process serves."""
        return Limits(self.limits.max_running, {name: most for name, most in self.limits.queues.items() if self.served.matches(name)})

    def limits_of(self, scope: Scope) -> Limits | None:
        """Return the limits that apply to a claim in this scope; None if there are none."""
        return self.limits.of(scope.queues) or None
