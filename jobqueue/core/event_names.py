"""The names of the events of jobs, and the facts that follow from a name.

Each run ends with exactly one of `ENDINGS`. A job that is canceled or paused while it does not run also has such
an event.
"""

from typing import Final

from jobqueue.core.states import Status

ENQUEUED: Final = "job.enqueued"
STARTED: Final = "job.started"
PROGRESS: Final = "job.progress"
PHASE_STARTED: Final = "job.phase.started"
PHASE_COMPLETED: Final = "job.phase.completed"
RETRYING: Final = "job.retrying"
HANDED_BACK: Final = "job.handed_back"
SLEEPING: Final = "job.sleeping"
WAITING: Final = "job.waiting"
PAUSED: Final = "job.paused"
RESUMED: Final = "job.resumed"
COMPLETED: Final = "job.completed"
FAILED: Final = "job.failed"
CANCELED: Final = "job.canceled"
LEASE_EXPIRED: Final = "job.lease_expired"
WEBHOOK_DELIVERED: Final = "job.webhook.delivered"
WEBHOOK_FAILED: Final = "job.webhook.failed"
STALE: Final = "job.stale"
DELETED: Final = "job.deleted"

ENDINGS: Final = (COMPLETED, FAILED, CANCELED, PAUSED, RETRYING, HANDED_BACK, SLEEPING, WAITING)
"""The events with which a run can end."""

NAMES: Final = (
    ENQUEUED,
    STARTED,
    PROGRESS,
    PHASE_STARTED,
    PHASE_COMPLETED,
    RETRYING,
    HANDED_BACK,
    SLEEPING,
    WAITING,
    PAUSED,
    RESUMED,
    COMPLETED,
    FAILED,
    CANCELED,
    LEASE_EXPIRED,
    WEBHOOK_DELIVERED,
    WEBHOOK_FAILED,
    STALE,
    DELETED,
)

SENDABLE: Final = tuple(name for name in NAMES if name not in (ENQUEUED, PROGRESS, WEBHOOK_DELIVERED, WEBHOOK_FAILED))
"""The events that a queue can send as webhooks.

Not among them: `job.enqueued`, because the caller knows of it and each enqueue would have to read the queue; progress; and the
events of deliveries themselves.
"""

SENT_BY_DEFAULT: Final = (COMPLETED, FAILED, CANCELED)
"""The events that are sent if the queue names none."""

STATUS_AFTER: Final[dict[str, str]] = {
    RETRYING: Status.PENDING.value,
    SLEEPING: Status.PENDING.value,
    WAITING: Status.PENDING.value,
    PAUSED: Status.PAUSED.value,
    COMPLETED: Status.SUCCESS.value,
    FAILED: Status.ERROR.value,
    CANCELED: Status.CANCELED.value,
}
"""The status of the job after an event, for events that have only one."""

ENDING_OF: Final[dict[str, str]] = {
    Status.SUCCESS.value: COMPLETED,
    Status.ERROR.value: FAILED,
    Status.CANCELED.value: CANCELED,
    Status.PAUSED.value: PAUSED,
}
"""The event of a move to a status, for statuses that have only one."""


def happens(name: str, log: str) -> bool:
    """Return whether an event is written and sent at all; progress is not, unless the setting `EVENT_LOG` (`log`) is "all"."""
    return name != PROGRESS or log == "all"
