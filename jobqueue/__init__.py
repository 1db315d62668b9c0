"""Background jobs in the database that a Django project already has.

Importing this package loads no model and reads no setting: a public name is imported at its first use.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jobqueue.core.answers import Answer, Verdict
    from jobqueue.core.backoff import exponential, fixed, linear
    from jobqueue.core.phases import phase
    from jobqueue.duties.registry import duty, duty_transaction
    from jobqueue.exceptions import (
        ChildrenRefused,
        Fatal,
        Interrupted,
        InvalidArguments,
        InvalidOption,
        JobDoesNotExist,
        JobIsRunning,
        JobQueueError,
        LeadershipLost,
        LeaseLost,
        PhasesChanged,
        PhaseUnknown,
        Retry,
        TimeLimitExceeded,
    )
    from jobqueue.insight.why import Why, why_waiting
    from jobqueue.lifecycle.control import cancel, clear_target, pause, request_job_cancel, resume, run_now
    from jobqueue.lifecycle.expire import expire_stale_running_jobs
    from jobqueue.lifecycle.queues import limit_queue, pause_queue, resume_queue
    from jobqueue.lifecycle.release import release_parked_targets
    from jobqueue.schedules.declarations import schedule
    from jobqueue.schedules.jobs import run_schedule_now
    from jobqueue.schedules.sync import sync_schedules
    from jobqueue.schedules.ticks import disable_schedule, enable_schedule
    from jobqueue.shortcuts import enqueue_job, enqueue_many
    from jobqueue.tasks.context import TaskContext
    from jobqueue.tasks.results import JobResult
    from jobqueue.tasks.task import JobTask, pipeline, task
    from jobqueue.webhooks.queues import set_queue_webhook

__version__ = "0.1.0"

_HOMES = {
    "jobqueue.core.backoff": ("exponential", "fixed", "linear"),
    "jobqueue.duties.registry": ("duty", "duty_transaction"),
    "jobqueue.exceptions": (
        "ChildrenRefused",
        "Fatal",
        "Interrupted",
        "InvalidArguments",
        "InvalidOption",
        "JobDoesNotExist",
        "JobIsRunning",
        "JobQueueError",
        "LeadershipLost",
        "LeaseLost",
        "PhasesChanged",
        "PhaseUnknown",
        "Retry",
        "TimeLimitExceeded",
    ),
    "jobqueue.core.answers": ("Answer", "Verdict"),
    "jobqueue.lifecycle.control": ("cancel", "clear_target", "pause", "request_job_cancel", "resume", "run_now"),
    "jobqueue.lifecycle.expire": ("expire_stale_running_jobs",),
    "jobqueue.lifecycle.queues": ("limit_queue", "pause_queue", "resume_queue"),
    "jobqueue.lifecycle.release": ("release_parked_targets",),
    "jobqueue.schedules.ticks": ("disable_schedule", "enable_schedule"),
    "jobqueue.insight.why": ("Why", "why_waiting"),
    "jobqueue.core.phases": ("phase",),
    "jobqueue.schedules.jobs": ("run_schedule_now",),
    "jobqueue.schedules.declarations": ("schedule",),
    "jobqueue.schedules.sync": ("sync_schedules",),
    "jobqueue.shortcuts": ("enqueue_job", "enqueue_many"),
    "jobqueue.tasks.context": ("TaskContext",),
    "jobqueue.tasks.results": ("JobResult",),
    "jobqueue.tasks.task": ("JobTask", "pipeline", "task"),
    "jobqueue.webhooks.queues": ("set_queue_webhook",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Answer",
    "ChildrenRefused",
    "Fatal",
    "Interrupted",
    "InvalidArguments",
    "InvalidOption",
    "JobDoesNotExist",
    "JobIsRunning",
    "JobQueueError",
    "JobResult",
    "JobTask",
    "LeadershipLost",
    "LeaseLost",
    "PhaseUnknown",
    "PhasesChanged",
    "Retry",
    "TaskContext",
    "TimeLimitExceeded",
    "Verdict",
    "Why",
    "cancel",
    "clear_target",
    "disable_schedule",
    "duty",
    "duty_transaction",
    "enable_schedule",
    "enqueue_job",
    "enqueue_many",
    "expire_stale_running_jobs",
    "exponential",
    "fixed",
    "limit_queue",
    "linear",
    "pause",
    "pause_queue",
    "phase",
    "pipeline",
    "release_parked_targets",
    "request_job_cancel",
    "resume",
    "resume_queue",
    "run_now",
    "run_schedule_now",
    "schedule",
    "set_queue_webhook",
    "sync_schedules",
    "task",
    "why_waiting",
]


def __getattr__(name: str) -> Any:
    """Import a public name from its module."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'jobqueue' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__
