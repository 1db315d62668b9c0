"""The duty of samples: every 10 seconds, it counts the load of each queue and task since the last sample.

A span is sampled `LAG_SECONDS` after its end, so that late commits are counted, too. What waits and runs is counted up
to a limit. What came and ended is counted by its index: at most `MAX_COUNTED` jobs. If there are more, the newest are
counted, and their rate is taken as that of the whole span.

Not counted are: jobs that were deleted before the sample (immediate retention), jobs of an enqueue whose transaction
took longer than `LAG_SECONDS`, and failed runs that are retried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from jobqueue.core import histograms
from jobqueue.core.loads import FINEST, OUTCOMES, QUEUE, TASK, Load
from jobqueue.core.states import Status
from jobqueue.db import loads
from jobqueue.duties import sample_rings
from jobqueue.duties.base import Duty, Report
from jobqueue.duties.sample_rings import Loads
from jobqueue.insight.queues import backlog
from jobqueue.models import Job

MAX_COUNTED = 20_000
MAX_QUEUED = 100_000  # jobs of a queue
MAX_BY_TASK = 10_000  # queued jobs that are counted by task
LAG_SECONDS = 2.0
SPAN = FINEST.seconds


class CollectMetrics(Duty):
    """The duty that writes samples of all queues and tasks."""

    name = "collect_metrics"
    interval_seconds = float(SPAN)
    # A worker that has just started has a backlog to work off. Its first run also samples the spans that it has skipped.
    first_pause_seconds = float(SPAN)
    is_short = True

    def __init__(self) -> None:
        """Start without an earlier sample."""
        self._rings = sample_rings.Rings()
        self._sampled: int | None = None  # the end of the last span that was sampled
        self._ids = (0, 0)  # the highest id at each of the last two samples: all later spans lie behind the older one

    def run_once(self, now: datetime) -> Report:
        """Sample the spans that have ended since the last sample."""
        end = int((now.timestamp() - LAG_SECONDS) // SPAN) * SPAN
        if self._sampled is None or self._sampled > end + SPAN:  # at the start of a term, or after a clock was set back
            self._sampled = self._rings.sampled_until(end)
        if self._sampled >= end:
            return Report()
        begin, database = self._sampled, Job.objects.database
        counted: Loads = {}
        if not loads.is_at_rest(database, self._ids[1], begin):
            newest = loads.newest_id(database)
            if not self._ids[1]:  # the first sample of the term
                self._ids = (max(newest - MAX_COUNTED, 0),) * 2
            if newest > self._ids[0]:
                _count_arrivals(counted, loads.arrived(database, self._ids[0], begin, end, SPAN, MAX_COUNTED), begin, end, now.timestamp())
            _count_endings(counted, loads.ended(database, begin, end, SPAN, MAX_COUNTED), begin, end)
            _count_present(counted, end - SPAN)
            self._ids = (self._ids[1], newest)
        written = self._rings.write(counted, end)
        self._sampled = end
        return Report(items=written)


def _of(counted: Loads, span: int, queue: object, task: object) -> tuple[Load, Load]:
    """Return the loads of a queue and of a task in a span."""
    here = counted.setdefault(span, {})
    return here.setdefault((QUEUE, str(queue)), Load()), here.setdefault((TASK, str(task)), Load())


def _count_arrivals(counted: Loads, rows: Sequence[loads.Arrived], begin: int, end: int, now: float) -> None:
    cut = sum(row.read for row in rows) >= MAX_COUNTED
    factor = SPAN / max(now - min(row.first for row in rows), 0.001) if cut else 1.0
    for row in rows:
        if number := row.read if cut else row.number:
            for load in _of(counted, end - SPAN if cut else _between(row.span, begin, end), row.queue, row.task):
                load.enqueued += round(number * factor)


def _count_endings(counted: Loads, rows: Sequence[loads.Ended], begin: int, end: int) -> None:
    cut = sum(row.number for row in rows) >= MAX_COUNTED
    factor = SPAN / max(end - min(row.first for row in rows), 0.001) if cut else 1.0
    for row in rows:
        number = round(row.number * factor)
        for load in _of(counted, end - SPAN if cut else _between(row.span, begin, end), row.queue, row.task):
            name = OUTCOMES[Status(row.status)]
            setattr(load, name, getattr(load, name) + number)
            load.wait_seconds += row.wait_seconds * factor
            load.run_seconds += row.run_seconds * factor
            for counts, position in ((load.waits, row.wait), (load.runs, row.run)):
                if position is not None:
                    histograms.increase(counts, position, number)


def _between(span: int, begin: int, end: int) -> int:
    """Return the span; one of the sampled spans if its time was rounded into another."""
    return min(max(span, begin), end - SPAN)


def _count_present(counted: Loads, span: int) -> None:
    """Count what waits and runs now. The queued jobs of a task are estimated from the first ones of each queue."""
    database, queued = Job.objects.database, backlog(MAX_QUEUED)
    most = max(MAX_BY_TASK // max(len(queued.pairs), 1), 10)
    waiting = loads.waiting(database, queued.pairs, most)
    read = _sums(waiting, lambda row: row.queue)
    for row in waiting:
        of_queue, of_task = _of(counted, span, row.queue, row.task)
        total = queued.numbers.get(row.queue, row.number)
        of_queue.queued, of_queue.oldest_seconds = total, queued.oldest_seconds.get(row.queue, 0.0)
        of_task.queued += round(row.number * max(total / read[row.queue], 1.0))
        of_task.oldest_seconds = max(of_task.oldest_seconds, row.oldest_seconds)
    for row in loads.running(database):
        for load in _of(counted, span, row.queue, row.task):
            load.running += row.number


def _sums(rows: Iterable[loads.Present], key: Callable[[loads.Present], str]) -> dict[str, int]:
    maximums: dict[str, int] = {}
    for row in rows:
        maximums[key(row)] = maximums.get(key(row), 0) + row.number
    return maximums
