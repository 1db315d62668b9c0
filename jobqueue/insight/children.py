"""The children that a job waits for."""

from __future__ import annotations

from typing import NamedTuple

from jobqueue.core import states
from jobqueue.core.sentences import Sentence, sentence
from jobqueue.models import Job, JobDependency

MAX_COUNTED = 1000


class Waits(NamedTuple):
    """The number of children that a job still waits for, up to the limit of the query, and the first of them."""

    live: int
    in_all: int
    first: int | None
    more: bool

    @property
    def text(self) -> Sentence:
        """These numbers as a sentence, without the full stop."""
        if self.first is None:
            return (
                sentence("The jobs that it waited for have ended: a worker promotes it within a second")
                if self.in_all
                else sentence("The jobs that it waited for are gone: a worker promotes it within a second")
            )
        values = {"live": self.live, "in_all": self.in_all, "job": str(self.first)}
        if self.more:
            return sentence("It waits for at least %(live)s of %(in_all)s children; the first is job %(job)s", **values)
        return sentence("It waits for %(live)s of %(in_all)s children; the first is job %(job)s", **values)


def waits(job: Job) -> Waits:
    """Count the children that a job waits for, among the first thousand that are not marked as ended."""
    rows = JobDependency.objects.using(Job.objects.database.alias).filter(parent=job)
    in_all = rows.count()
    waited = rows.filter(ended=False).order_by("child_id").values_list("child_id", flat=True)[: MAX_COUNTED + 1]
    ids = [child for child in waited if isinstance(child, int)]  # SQLite stores any value in any column
    live = sorted(Job.objects.current.filter(pk__in=ids).exclude(status__in=states.ENDED).values_list("pk", flat=True))
    return Waits(len(live), in_all, live[0] if live else None, len(ids) > MAX_COUNTED)
