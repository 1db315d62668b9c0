"""The check whether a worker that was started with ``--once`` can end: no job in its queues is left to run."""

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
    """A check for jobs that are left in the queues that a worker serves."""

    def __init__(self, settings: Settings, runs: Runs) -> None:
        """Keep the settings and the runs of this process."""
        self._settings, self._runs = settings, runs
        self._nothing_before = False

    def is_drained(self) -> bool:
        """Return whether two checks in a row have found no run in this process and no job that could begin."""
        try:
            # The last two release jobs whose children have ended, and jobs that raw SQL left parked. Released jobs are left to run, too.
            nothing = not len(self._runs) and not self._jobs().exists() and not resume_parents() and not release_parked_targets()
        except Exception as error:
            if not is_outage(error):
                raise
            hygiene.close_broken(Job.objects.database.alias)
            nothing = False
        twice, self._nothing_before = nothing and self._nothing_before, nothing
        return twice

    def _jobs(self) -> JobQuerySet[Job]:
        jobs = Job.objects.current.served_by(queue_rules.parse(self._settings.queues))
        if self._settings.max_running == 0:
            return jobs.filter(status=Job.Status.RUNNING)
        return jobs.unfinished(list(Queue.objects.current.not_starting().values_list("name", flat=True)))
