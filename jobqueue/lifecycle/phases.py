"""The phases of jobs. They are inserted with the job. The run of the job begins and ends them, and the end of the job updates them.

All writes happen while the job's row is locked. The writes of a run (`open_phases`, `advance`, `keep_checkpoint`,
`show`) are guarded by its lease (`guard.py`). Each can be called again with the same values, because the
response to a commit can be lost. The end of a phase is stored before the next phase begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.models import JSONField, QuerySet, TextField, Value
from django.db.models.functions import Cast, Coalesce

from jobqueue.core import states
from jobqueue.core.event_names import PHASE_COMPLETED, PHASE_STARTED, STARTED
from jobqueue.core.json_columns import SLEEPS_UNTIL, as_dict
from jobqueue.core.phases import PhaseState, overall, reconciled
from jobqueue.db import Lease, Now
from jobqueue.db.pipelines import insert_phases
from jobqueue.events.record import last_progress, record, record_all
from jobqueue.exceptions import NoPhases
from jobqueue.lifecycle import children
from jobqueue.lifecycle.guard import guarded
from jobqueue.lifecycle.outcome import FinishedPhase, LastProgress, PhaseProgress
from jobqueue.models import Job, JobPhase


def _phases(**where: Any) -> QuerySet[JobPhase]:
    return JobPhase.objects.using(Job.objects.database.alias).filter(**where)


def make(job_ids: Sequence[int], names: Sequence[str]) -> None:
    """Make the phases of new jobs, in the transaction that makes the jobs."""
    if names and job_ids:
        insert_phases(Job.objects.database, JobPhase._meta.db_table, job_ids, names)


def open_phases(lease: Lease, names: Sequence[str]) -> list[PhaseState]:
    """Update a job's phases to those of the code, begin the first that has not finished, and return the state of all."""
    with guarded(lease) as job:
        texts = {f"{name}_text": Cast(name, TextField()) for name in ("result", "checkpoint")}
        rows = {row.name: row for row in _phases(job=job).defer("result", "checkpoint").annotate(**texts)}
        known = reconciled(names, [_phase_state(row) for row in rows.values()])
        unfit = [row.pk for row in rows.values() if row.name not in names and row.status != JobPhase.Status.SUCCESS]
        if unfit:
            _phases(pk__in=unfit).delete()
        make([job.pk], [name for name in names if name not in rows])
        for position, name in enumerate(names):
            if name not in rows or rows[name].position != position:
                _phases(job=job, name=name).update(position=position)
        children.keep_ended(job)
        done = sum(state.finished for state in known)
        current = known[done] if done < len(known) else None
        progress = overall(done, 0, len(names))
        _begin(job, current, done, progress, **_started(job))
    # The results of phases that finished before and are no longer in the code can still be read.
    removed = [_phase_state(row) for row in rows.values() if row.name not in names and row.status == JobPhase.Status.SUCCESS]
    return [*known, *removed]


def drop_unfinished(lease: Lease) -> None:
    """Delete the unfinished phases of a job that now runs without phases. Its finished phases stay, and the job starts again."""
    with guarded(lease) as job:
        _phases(job=job).exclude(status=JobPhase.Status.SUCCESS).delete()
        children.keep_ended(job)
        Job.objects.current.filter(pk=job.pk).update(phase="", progress=0, **_started(job))


def _started(job: Job) -> dict[str, Any]:
    """Return the columns of a job that begins to run now. Its start is recorded before that of its first phase."""
    changes: dict[str, Any] = {}
    if job.started_at is None:
        changes |= {"started_at": Now(), "first_started_at": Coalesce("first_started_at", Now())}
        record(job, STARTED)
    if SLEEPS_UNTIL in as_dict(job.options):
        changes["options"] = {key: value for key, value in job.options.items() if key != SLEEPS_UNTIL}
    return changes


def _phase_state(row: Any) -> PhaseState:
    return PhaseState(row.name, row.status, row.attempts, row.result_text, row.checkpoint_text)


def advance(
    lease: Lease,
    done: FinishedPhase,
    following: PhaseState | None,
    progress: int,
    *,
    message: str | None = None,
    told: LastProgress | None = None,
    stops: bool = False,
) -> None:
    """End a phase with its result and its last message, and begin the next (None: there is none), in one transaction.

    The last progress, `told`, is recorded as an event unless it was recorded already. If the run `stops` here, the
    next phase is left unchanged for the next run.
    """
    with guarded(lease) as job:
        if told is not None and (last := last_progress(job, *told)) is not None:
            record_all([last])
            if told.message is not None:
                Job.objects.current.filter(pk=job.pk).update(message=told.message)
        finish(job, done, message)
        if stops and following is not None:
            Job.objects.current.filter(pk=job.pk).update(progress=progress, phase=following.name)
        else:
            _begin(job, following, done.position + 1, progress)


def finish(job: Job, done: FinishedPhase, message: str | None = None) -> None:
    """End a phase of a job whose row is locked."""
    changes: dict[str, Any] = {"message": message} if message is not None else {}
    moved = (
        _phases(job=job, name=done.name)
        .exclude(status=JobPhase.Status.SUCCESS)
        .update(status=JobPhase.Status.SUCCESS, progress=100, finished_at=Now(), result=as_json(done.result), **changes)
    )
    if moved:
        record(job, PHASE_COMPLETED, {"phase": done.name, "position": done.position})


def _begin(job: Job, phase: PhaseState | None, position: int, progress: int, **changes: Any) -> None:
    changes["progress"] = progress
    if phase is not None:
        changes["phase"] = phase.name
        rows = _phases(job=job, name=phase.name).exclude(status=JobPhase.Status.SUCCESS)
        fresh = {"attempts": phase.attempts + 1, "progress": 0, "message": ""}
        rows = rows.exclude(status=JobPhase.Status.RUNNING, attempts=phase.attempts + 1)  # written already, and the response was lost
        if rows.update(status=JobPhase.Status.RUNNING, started_at=Now(), finished_at=None, **fresh):
            record(job, PHASE_STARTED, {"phase": phase.name, "position": position, "attempt": phase.attempts + 1})
    Job.objects.current.filter(pk=job.pk).update(**changes)


def keep_checkpoint(lease: Lease, name: str, text: str) -> None:
    """Write the checkpoint from which the next run of a phase continues."""
    with guarded(lease) as job:
        if not _phases(job=job, name=name, status=JobPhase.Status.RUNNING).update(checkpoint=as_json(text)):
            raise NoPhases(
                f"Phase {name!r} has ended, so it cannot store a checkpoint. A phase must end its threads and coroutines before it returns."
            )


def show(job_id: int, shown: PhaseProgress) -> None:
    """Write the progress of a phase. The caller has locked the job's row under the run's lease."""
    changes: dict[str, Any] = {"progress": shown.progress}
    if shown.message is not None:
        changes["message"] = shown.message
    _phases(job=job_id, name=shown.name, status=JobPhase.Status.RUNNING).update(**changes)


def settle(job: Job, destination: states.Place, shown: PhaseProgress | None = None, message: str = "") -> None:
    """Update the phases of a job that was moved, in the same transaction; do nothing if the job has no phases."""
    if not job.phase:
        return
    if shown is not None:
        show(job.pk, shown)
    if destination == states.CANCELED:
        unfinished = _phases(job=job).exclude(status=JobPhase.Status.SUCCESS)
        unfinished.update(status=JobPhase.Status.CANCELED, finished_at=Now())
    elif destination == states.ERROR:
        _phases(job=job, status=JobPhase.Status.RUNNING).update(status=JobPhase.Status.ERROR, finished_at=Now(), message=message)
    elif destination != states.SUCCESS:
        _phases(job=job, status__in=[JobPhase.Status.RUNNING, JobPhase.Status.ERROR]).update(status=JobPhase.Status.PENDING)


def progress_of(job: Job) -> int:
    """Return the progress of a job in percent, from the number of phases that it has finished; 0 if it has no phases."""
    if not job.phase:
        return 0
    statuses = list(_phases(job=job).values_list("status", flat=True))
    return overall(sum(status == JobPhase.Status.SUCCESS for status in statuses), 0, len(statuses)) if statuses else 0


def as_json(text: str) -> Any:
    """Return JSON text as the value of a JSON column, written unchanged."""
    return Cast(Value(text, output_field=TextField()), JSONField())
