"""The runs of a job as the job's page shows them, and the rows of its sections."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.utils.html import format_html
from django.utils.translation import gettext as _

from jobqueue.admin.formatting import between, masked_json, moment, parsed, prose
from jobqueue.admin.pages import Pages
from jobqueue.core.masking import Mask
from jobqueue.models import Job, LeftWorker, Worker

TRACEBACK_CHARACTERS = 16_000
MAX_RUNS = 50
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a section; a `block` value is shown unchanged, with its line breaks."""

    name: str
    value: str
    block: bool = False


@dataclass(frozen=True, slots=True)
class RunRow:
    """One entry of the history."""

    title: str
    outcome: str
    rows: list[Row]
    traceback: str


def rows_of(*pairs: tuple[str, Any]) -> list[Row]:
    """Return the rows of a section, without those that have no value."""
    return [Row(name, value if isinstance(value, str) else str(value)) for name, value in pairs if value not in (None, "")]


def process_names(pages: Pages, job: Job) -> dict[str, str]:
    """Return the processes of the workers of a job's runs by their ids; those that the user can view now are links."""
    history = job.history if isinstance(job.history, list) else []
    listed = job.worker_ids if isinstance(job.worker_ids, list) else []
    given = [entry.get("worker") for entry in history if isinstance(entry, dict)] + listed[-1:] + [job.lease_owner]
    ids = {one for one in given[-MAX_RUNS:] if isinstance(one, str) and _UUID.fullmatch(one)}
    if not ids:
        return {}
    shown: dict[str, str] = {one: format_html('<span title="{}">{}…</span>', one, one[:8]) for one in ids}
    left = LeftWorker.objects.using(Job.objects.database.alias).filter(worker__in=ids)
    shown |= {str(row.worker): format_html('<bdi title="{}">{}</bdi>', row.worker, row) for row in left}
    may_view = pages.may_view(Worker)
    for row in Worker.objects.filter(pk__in=ids):
        url = pages.url("jobqueue_worker_change", row.pk) if may_view else ""
        name = format_html('<bdi title="{}">{}</bdi>', row.pk, row)
        shown[str(row.pk)] = format_html('<a href="{}">{}</a>', url, name) if url else name
    return shown


def succeeded(job: Job, mask: Mask, names: Mapping[str, str]) -> list[RunRow]:
    """Return the run that succeeded, which is not in the history."""
    if job.status != Job.Status.SUCCESS:
        return []
    began, ended = job.started_at, job.finished_at
    last = prose(job.worker_ids[-1], mask=mask) if isinstance(job.worker_ids, list) and job.worker_ids else ""
    rows = rows_of(
        (_("Began"), moment(began) if began else ""),
        (_("Ended"), moment(ended) if ended else ""),
        (_("Took"), between(began, ended) if began and ended else ""),
        (_("Worker"), names.get(last, last)),
    )
    return [RunRow(_("Run %(number)s") % {"number": job.attempt}, "SUCCESS", rows, "")]


def failed_runs(history: object, mask: Mask, names: Mapping[str, str]) -> Iterator[RunRow]:
    """Yield the runs that did not succeed, the newest first; an entry of another form is shown unchanged."""
    entries = history if isinstance(history, list) else [history] if history else []
    for number, entry in reversed([*enumerate(entries, 1)][-MAX_RUNS:]):
        if isinstance(entry, dict):
            yield _run(entry, mask, names)
        else:
            yield RunRow(
                _("Entry %(number)s") % {"number": number}, _("unreadable"), [Row(_("Stored"), masked_json(entry, mask), block=True)], ""
            )


def _run(entry: dict[str, Any], mask: Mask, names: Mapping[str, str]) -> RunRow:
    begin, end = parsed(entry.get("started_at")), parsed(entry.get("finished_at"))
    took = between(begin, end) if begin and end and (begin.tzinfo is None) == (end.tzinfo is None) else ""
    worker = _text(entry, mask, "worker")
    rows = rows_of(
        (_("Exception"), _text(entry, mask, "exception")),
        (_("Message"), _text(entry, mask, "message")),
        (_("Abandoned"), _text(entry, mask, "abandoned")),
        (_("Began"), moment(begin) if begin else _text(entry, mask, "started_at")),
        (_("Ended"), moment(end) if end else _text(entry, mask, "finished_at")),
        (_("Took"), took),
        (_("Worker"), names.get(worker, worker)),
        (_("Release"), _text(entry, mask, "release")),
    )
    return RunRow(
        _("Run %(number)s") % {"number": _text(entry, mask, "attempt") or "?"},
        _text(entry, mask, "outcome"),
        rows,
        _text(entry, mask, "traceback", TRACEBACK_CHARACTERS),
    )


def _text(entry: dict[str, Any], mask: Mask, name: str, longest: int = 2000) -> str:
    value = entry.get(name)
    if value is None:
        return ""
    return prose(value, longest, mask) if isinstance(value, str) else prose(mask.value(value), longest, mask)
