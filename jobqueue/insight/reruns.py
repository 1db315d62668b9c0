"""The links between a job and the jobs that run it again, as far as a user may see them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from jobqueue.access import visible
from jobqueue.models import Job, JobRerun

MAX_COPIES: Final = 20


@dataclass(frozen=True, slots=True)
class Reruns:
    """The job of which a job is a copy, or None, and the newest copies of it."""

    original: int | None
    copies: list[int]


def reruns_of(user: Any, job: Job) -> Reruns:
    """Return the original and the newest copies of a job that the user may see."""
    rows = JobRerun.objects.using(Job.objects.database.alias)
    originals = list(rows.filter(copy=job).values_list("original_id", flat=True))
    copies = list(rows.filter(original=job).order_by("-pk").values_list("copy_id", flat=True)[:MAX_COPIES])
    if not (originals or copies):
        return Reruns(None, [])
    seen = {*visible.narrow(user, Job.objects.current.filter(pk__in=[*originals, *copies])).values_list("pk", flat=True)}
    return Reruns(next((one for one in originals if one in seen), None), [one for one in copies if one in seen])
