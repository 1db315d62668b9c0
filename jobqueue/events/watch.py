"""Read the rows of the jobs that clients watch, to report their progress, for which there are no events."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from jobqueue import clock, public_ids
from jobqueue.core import event_names as names
from jobqueue.core import masking
from jobqueue.models import Job, JobPhase

MAX_WATCHED = 500  # the maximum for one turn; if more jobs are watched, each turn reads a part of them
MAX_TEXT_BYTES = 2000
COLUMNS = ("pk", "status", "progress", "phase", "message", "attempt", "tenant", "target", "task", "queue")


class Watch:
    """The last known progress of each watched job."""

    def __init__(self) -> None:
        """Create it without a job."""
        self._seen: dict[int, tuple[int, Any]] = {}
        self._turn = 0

    def changes(self, watched: dict[int, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the jobs that have changed or have a new watcher, each with the data to send."""
        for forgotten in self._seen.keys() - watched.keys():
            del self._seen[forgotten]
        ids = self._some(watched)
        if not ids:
            return
        phases = self._phases(ids)
        for row in Job.objects.current.filter(pk__in=ids).values_list(*COLUMNS):
            job_id, watchers = row[0], len(watched[row[0]])
            now = (row[1:], phases.get(job_id))
            before = self._seen.get(job_id, (0, None))
            self._seen[job_id] = (watchers, now)
            if before[1] != now or watchers > before[0]:
                yield job_id, _progress_message(row, phases.get(job_id))

    def _some(self, watched: Collection[int]) -> list[int]:
        ids = sorted(watched)
        parts = -(-len(ids) // MAX_WATCHED)
        self._turn += 1
        return ids[self._turn % parts :: parts] if parts else []

    def _phases(self, ids: list[int]) -> dict[int, tuple[str, int, str]]:
        running = JobPhase.objects.using(Job.objects.database.alias).filter(job__in=ids, status=JobPhase.Status.RUNNING)
        return {job_id: state for job_id, *state in running.values_list("job_id", "name", "progress", "message")}  # type: ignore[misc]


def _progress_message(row: tuple[Any, ...], phase: Any) -> dict[str, Any]:
    job_id, status, progress, phase_name, message, attempt, tenant, target, task, queue = row
    data: dict[str, Any] = {"progress": progress, "message": _shown(message), "phase": _shown(phase_name)}
    if phase is not None:
        data |= {"phase": _shown(phase[0]), "phase_progress": phase[1], "phase_message": _shown(phase[2])}
    return {
        "id": None,
        "event": names.PROGRESS,
        "job_id": job_id,
        "public_id": public_ids.public_id(job_id),
        "at": clock.now().isoformat(),
        "attempt": attempt,
        "status": status,
        "task": task,
        "queue": queue,
        "tenant": tenant,
        "target": masking.mask_text(target),
        "data": data,
    }


def _shown(text: str) -> str:
    return masking.PLAIN.cut(text, MAX_TEXT_BYTES)
