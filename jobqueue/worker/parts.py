"""The parts of one worker process."""

from __future__ import annotations

from dataclasses import dataclass, field

from jobqueue.service import Service
from jobqueue.worker.announcer import Announcer
from jobqueue.worker.dispatcher import Dispatcher
from jobqueue.worker.duties import Duties
from jobqueue.worker.finisher import Finisher
from jobqueue.worker.heartbeat import Heartbeat
from jobqueue.worker.interrupter import Interrupter
from jobqueue.worker.lanes import Lanes
from jobqueue.worker.listener import Listener
from jobqueue.worker.loop import Loop
from jobqueue.worker.maintenance import Maintenance
from jobqueue.worker.reporter import Reporter
from jobqueue.worker.run import Runs
from jobqueue.worker.scaler import Scaler
from jobqueue.worker.tenant_slots import TenantSlots


@dataclass
class Parts:
    """Hold the parts of one process, in the order in which they start."""

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
        """The one that is given outcomes; others write a part of them."""
        return self.finishers[0]

    def __post_init__(self) -> None:
        """List the services; the dispatcher comes last, when everything it needs runs."""
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
