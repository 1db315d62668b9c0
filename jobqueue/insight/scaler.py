"""The autoscaling signal: how many slots each queue needs, from its samples (see ``core/scaling.py``)."""

from __future__ import annotations

from dataclasses import dataclass

from jobqueue.core import histograms
from jobqueue.core.loads import COARSER, COLUMNS, FINEST, QUEUE, Load, summed
from jobqueue.core.scaling import DEFAULT_TARGET, MINUTES, mean_run_seconds, slots_wanted
from jobqueue.insight.samples import now, stored
from jobqueue.models import Queue

MINUTE = COARSER[0].seconds
UNSUMMED = 3  # the newest minutes, which are read from the shorter spans
RECENT_MINUTES = 5


@dataclass(frozen=True, slots=True)
class QueueDemand:
    """The slots that a queue needs, and the numbers behind it.

    `queued` is the highest depth in the last minute. `arrivals_per_second`, and `wait_p95` in seconds, are those of the
    last five minutes; `run_seconds` is the mean duration of the runs in the last hour. The last two are None if no job
    has ended. A queue that is paused wants no slots, and one with a limit not more than its limit.
    """

    queue: str
    slots_wanted: int
    queued: int
    arrivals_per_second: float
    run_seconds: float | None
    wait_p95: float | None


def queue_demands(within_seconds: float = DEFAULT_TARGET) -> list[QueueDemand]:
    """Return the demand of each queue that had jobs in the last hour, by name.

    A backlog shall be gone within `within_seconds` after it came. The cost depends on the number of queues only.
    """
    last = int(now() // MINUTE)
    tail = (last - UNSUMMED + 1) * MINUTE
    loads: dict[str, dict[int, Load]] = {}
    for seconds, first, end in ((MINUTE, (last - MINUTES) * MINUTE, tail), (FINEST.seconds, tail, (last + 1) * MINUTE)):
        rows = stored().filter(kind=QUEUE, seconds=seconds, begins__gte=first, begins__lt=end)
        for row in rows.values("name", "begins", *COLUMNS):
            minutes = loads.setdefault(row["name"], {})
            minutes.setdefault(row["begins"] // MINUTE, Load()).follow(Load.of_row(row))
    limits = {
        name: 0 if paused else most for name, paused, most in Queue.objects.current.special().values_list("pk", "paused", "max_running")
    }
    return [
        _demand(name, [found.get(minute, Load()) for minute in range(last - MINUTES + 1, last + 1)], within_seconds, limits.get(name))
        for name, found in sorted(loads.items())
    ]


def _demand(name: str, minutes: list[Load], within_seconds: float, limit: int | None) -> QueueDemand:
    wanted, recent = slots_wanted(minutes, within_seconds), summed(minutes[-RECENT_MINUTES:])
    return QueueDemand(
        name,
        wanted if limit is None else min(wanted, limit),
        minutes[-1].queued,
        recent.enqueued / (RECENT_MINUTES * MINUTE),
        mean_run_seconds(minutes),
        histograms.quantile(recent.waits, 0.95),
    )
