"""The services and pools of one worker process, as one object."""

from __future__ import annotations

from dataclasses import dataclass, field

from jobqueue.core.service import Service
from jobqueue.worker.claim_policy import ClaimPolicy
from jobqueue.worker.claiming.dispatcher import Dispatcher
from jobqueue.worker.claiming.listener import Listener
from jobqueue.worker.claiming.tenant_slots import TenantSlots
from jobqueue.worker.duties.contender import Duties
from jobqueue.worker.fleet.scaler import Scaler
from jobqueue.worker.process.maintenance import Maintenance
from jobqueue.worker.reporting.announcer import Announcer
from jobqueue.worker.reporting.finisher import Finisher
from jobqueue.worker.reporting.heartbeat import Heartbeat
from jobqueue.worker.reporting.reporter import Reporter
from jobqueue.worker.running.interrupter import Interrupter
from jobqueue.worker.running.lanes import Lanes
from jobqueue.worker.running.loop import Loop
from jobqueue.worker.running.run import Runs


@dataclass
class Parts:
    """The parts of one worker process; `services` lists its services in the order in which they start."""

    policy: ClaimPolicy
    runs: Runs
    lanes: Lanes
    loop: Loop
    finishers: list[Finisher]
    interrupter: Interrupter
    heartbeat: Heartbeat
    reporter: Reporter
    dispatcher: Dispatcher
    maintenance: Maintenance
    duties: Duties
    scaler: Scaler
    listener: Listener | None
    announcer: Announcer
    tenant_slots: TenantSlots | None
    services: list[Service] = field(init=False)

    @property
    def finisher(self) -> Finisher:
        """The finisher that gets all outcomes; a second one writes some of them for it."""
        return self.finishers[0]

    def __post_init__(self) -> None:
        """List the services; the dispatcher is last, since it needs the services before it."""
        chain = (
            self.announcer,
            self.tenant_slots,
            *self.finishers,
            self.interrupter,
            self.heartbeat,
            self.reporter,
            self.maintenance,
            self.duties,
            self.scaler,
            self.listener,
            self.dispatcher,
        )
        self.services = [service for service in chain if service is not None]
