"""The load of one queue or task for its page: charts, histograms and quantiles."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlencode

from django.http import HttpRequest
from django.utils.translation import gettext as _

from jobqueue.admin import charts, columns, figures, load_charts
from jobqueue.admin.formatting import duration
from jobqueue.admin.overview.data import RANGE_SECONDS
from jobqueue.admin.overview.page import RANGE, RANGES
from jobqueue.admin.pages import Pages
from jobqueue.core import histograms, recent
from jobqueue.core.masking import mask_text
from jobqueue.insight.histories import NOW_SECONDS, Histories, History, add_histograms, histories
from jobqueue.models import Job

MAX_JOBS: Final = 10


def load_of(kind: str, name: str, period: str) -> Histories:
    """Return the loads of one queue or task with its histograms; a process keeps them for a while."""

    def read() -> Histories:
        found = histories(kind, period, name)
        add_histograms(kind, period, [*found.by_name.values()], end=found.end)
        return found

    return recent.kept(("load", Job.objects.database.scope, kind, name, period), RANGE_SECONDS[period], read)


def context(loads: Histories, name: str, period: str, timed_marks: Any = ()) -> dict[str, Any]:
    """Return the charts and the numbers of a queue or task; it has none if it has no sample in the range."""
    history = loads.by_name.get(name)
    return {
        "ranges": ranges(period),
        "has_samples": history is not None,
        "depth": load_charts.depth(loads, timed_marks),
        "throughput": load_charts.throughput(loads, timed_marks),
        "durations": [] if history is None else [_durations(_("Wait"), history.total.waits), _durations(_("Run"), history.total.runs)],
        "outcomes": [] if history is None else _outcomes(history),
    }


def ranges(period: str, **query: str) -> list[tuple[str, Any, str, bool]]:
    """Return the ranges to choose from: name, label, URL, and whether it is chosen."""
    return [(name, label, f"?{urlencode({RANGE: name, **query})}", name == period) for name, label in RANGES.items()]


def _durations(name: str, counts: list[int]) -> dict[str, Any]:
    first = next((position for position, number in enumerate(counts) if number), 0)
    shown = counts[first:]
    labels = [f"{_interval(position)}: {figures.count(number)}" for position, number in enumerate(shown, first)]
    return {
        "name": name,
        "p50": figures.quantile(counts, 0.5),
        "p95": figures.quantile(counts, 0.95),
        "longest": figures.longest(counts),
        "bars": charts.bars(shown, labels, name) if shown else "",
        "from": _low(first) if shown else "",
        "to": duration(_bound(len(counts) - 1)) if shown else "",
        "table": [(_interval(position), figures.count(number)) for position, number in enumerate(shown, first) if number],
    }


def _bound(position: int) -> float:
    return histograms.BOUNDS[min(position, len(histograms.BOUNDS) - 1)]


def _interval(position: int) -> str:
    """Return the durations that one position of a histogram counts."""
    return _("%(low)s to %(high)s") % {"low": _low(position), "high": duration(_bound(position))}


def _low(position: int) -> str:
    return duration(_bound(position - 1) if position else 0)


def _outcomes(history: History) -> list[tuple[str, str]]:
    total, now = history.total, history.now
    return [
        (_("Came"), figures.count(total.enqueued)),
        (_("Ended"), figures.count(total.ended)),
        (_("Failed"), f"{figures.count(total.failed)} ({figures.percent(total.failed / total.ended if total.ended else 0.0)})"),
        (_("Canceled"), figures.count(total.canceled)),
        (_("In per second, last 5 minutes"), figures.rate(now.enqueued / NOW_SECONDS)),
        (_("Ended per second, last 5 minutes"), figures.rate(now.ended / NOW_SECONDS)),
    ]


def job_rows(request: HttpRequest, jobs: list[Job]) -> list[dict[str, Any]]:
    """Return rows of jobs for the template ``job_rows.html``."""
    pages = Pages(request)
    return [
        {
            "id": job.pk,
            "url": pages.url("jobqueue_job_change", job.pk),
            "status": columns.status(job),
            "task": mask_text(job.task),
            "queue": mask_text(job.queue),
            "target": mask_text(job.target),
            "tenant": mask_text(job.tenant),
            "waited": columns.waited(job),
            "ran": columns.ran(job),
        }
        for job in jobs
    ]
