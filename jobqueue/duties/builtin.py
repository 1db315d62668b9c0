"""The built-in duties and their factories."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jobqueue import conf
from jobqueue.duties.apply_retention import ApplyRetention
from jobqueue.duties.base import Duty
from jobqueue.duties.collect_metrics import CollectMetrics
from jobqueue.duties.deliver_webhooks import DeliverWebhooks
from jobqueue.duties.enqueue_scheduled_jobs import EnqueueScheduledJobs
from jobqueue.duties.expire_stale_running_jobs import ExpireStaleRunningJobs
from jobqueue.duties.forget_dead_workers import ForgetDeadWorkers
from jobqueue.duties.promote_due_jobs import PromoteDueJobs
from jobqueue.duties.release_parked_targets import ReleaseParkedTargets
from jobqueue.duties.run_bulk_actions import RunBulkActions
from jobqueue.lifecycle.expire import Expired

Factories = dict[str, Callable[[], Duty]]
# The duties that need the code of a project. Each service has a leader of its own for them.
SCOPED = (EnqueueScheduledJobs.name,)


def builtin(renew: Callable[[], None], announce: Callable[[Sequence[Expired]], None], not_before: Callable[[], float]) -> Factories:
    """Return the factory of each built-in duty, by its name in this service.

    `renew` renews the leases of this process. `announce` is called with the jobs that were lost and recovered. No job is recovered before
    the monotonic time that `not_before` returns.
    """
    simple: tuple[type[Duty], ...] = (
        ApplyRetention,
        CollectMetrics,
        DeliverWebhooks,
        EnqueueScheduledJobs,
        ForgetDeadWorkers,
        PromoteDueJobs,
        ReleaseParkedTargets,
        RunBulkActions,
    )
    factories: Factories = {duty_class.name: duty_class for duty_class in simple}
    factories[ExpireStaleRunningJobs.name] = lambda: ExpireStaleRunningJobs(renew, announce, not_before)
    options = conf.current().duties or {}
    return {
        conf.scoped(name) if name in SCOPED else name: _configured(make, options[name]) if name in options else make
        for name, make in factories.items()
    }


def _configured(make: Callable[[], Duty], options: Mapping[str, Any]) -> Callable[[], Duty]:
    """Return a factory that applies the options of the setting ``DUTIES`` to the duty."""

    def make_configured() -> Duty:
        duty = make()
        for name, value in options.items():
            setattr(duty, name, value)
        return duty

    return make_configured
