"""Signal receivers that write all log records about jobs; a record has job, queue and worker as fields, too."""

import logging
from typing import Any

from jobqueue import failure_log, signals
from jobqueue.core import repeats
from jobqueue.core.masking import mask_text
from jobqueue.lifecycle.outcome import Kind

logger = logging.getLogger("jobqueue")


def _level(status: str, kind: Any) -> int:
    """Return the log level of a run's end: a failure that is retried is a warning."""
    if status == "ERROR":
        return logging.ERROR
    return logging.WARNING if kind in (Kind.RETRY, Kind.UNKNOWN_TASK) else logging.INFO


def log_settled(sender: Any, *, job_id: int, task: str, queue: str, status: str, seconds: float, **more: Any) -> None:
    """Log the end of a run in one record, with the exception if it failed."""
    level = _level(status, more.get("kind"))
    if not logger.isEnabledFor(level):
        return
    text = f" ({mask_text(more['message'])})" if more.get("message") else ""
    next_run = f", {_later(more)}" if status == "PENDING" else ""
    extra = {"job_id": job_id, "task": task, "queue": queue, "worker_id": more.get("worker_id"), "attempt": more.get("attempt")}
    line = ("Job %s %s %s in %.3f s%s%s", job_id, task, status, seconds, next_run, text)
    if status == "PENDING" and more.get("kind") is Kind.UNKNOWN_TASK:  # tried again every few seconds, as long as no worker has the task
        repeats.log(level, *line, kind=task, extra=extra)
    else:
        failure_log.log(level, *line, extra=extra)


def _later(more: dict[str, Any]) -> str:
    if more.get("kind") is Kind.WAIT:
        return "next run when the jobs for which it waits have ended"
    return f"next run in {more['delay_seconds']:.1f} s"


def log_lost(sender: Any, *, job_id: int, task: str, status: str, worker_id: str, **more: Any) -> None:
    """Log the recovery of a job whose worker was lost."""
    extra = {"job_id": job_id, "task": task, "worker_id": worker_id}
    level = logging.ERROR if status == "ERROR" else logging.WARNING
    failure_log.log(level, "Job %s %s: worker %s was lost; the job is %s now", job_id, task, worker_id, status, extra=extra)


def connect() -> None:
    """Connect the receivers once."""
    failure_log.connect()
    signals.job_settled.connect(log_settled, dispatch_uid="jobqueue.log_settled")
    signals.job_lost.connect(log_lost, dispatch_uid="jobqueue.log_lost")
    signals.only_logs(signals.job_settled, "jobqueue.log_settled", "jobqueue", logging.INFO)
    signals.only_logs(signals.job_lost, "jobqueue.log_lost", "jobqueue", logging.WARNING)
