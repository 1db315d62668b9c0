"""Whether there is anything left to do: when a worker that was started with ``--once`` may end."""

from __future__ import annotations

from jobqueue.conf import Settings
from jobqueue.core import queue_rules
from jobqueue.db import hygiene
from jobqueue.lifecycle.children import resume_parents
from jobqueue.lifecycle.release import release_parked_targets
from jobqueue.managers.jobs import JobQuerySet
from jobqueue.models import Job, Queue
from jobqueue.worker.base import is_outage
from jobqueue.worker.running.run import Runs


class RemainingWork:
    """Look for what is left in the queues that a worker serves."""

    def __init__(self, settings: Settings, runs: Runs) -> None:
        """Prepare; `runs` are those of this process."""
        self._settings, self._runs = settings, runs
        self._nothing_before = False

    def is_drained(self) -> bool:
        """Return whether, seen twice in a row, nothing runs here, and nothing is left that may begin."""
        try:
            # Last those whose children have ended, and what raw SQL has left parked behind free targets: what is let go now is left, too.
            nothing = not len(self._runs) and not self._jobs().exists() and not resume_parents() and not release_parked_targets()
        except Exception as error:
            if not is_outage(error):
                raise
            hygiene.close_broken(Job.objects.database.alias)
            nothing = False
        twice, self._nothing_before = nothing and self._nothing_before, nothing
        return twice

    def _jobs(self) -> JobQuerySet:
        jobs = Job.objects.current.served_by(queue_rules.parse(self._settings.queues))
        if self._settings.max_running == 0:
            return jobs.filter(status=Job.Status.RUNNING)
        return jobs.unfinished(list(Queue.objects.current.closed().values_list("name", flat=True)))
