"""Jobs by the search language (``core/search.py``): the condition for the database, and the newest jobs that meet it.

Arguments and messages can contain secrets, so a job is found by their masked form only. The condition finds jobs by
the stored values, and `matches` then checks the masked ones. The callers narrow the jobs to those that the user may
see (``access/visible.py``).

A search by number, or by one of the statuses in `FOUND_BY_INDEX` alone, covers the whole table. Any other search covers
the newest `WINDOW` jobs and, by their partial indexes, older jobs that are not in SUCCESS or CANCELED.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django.db.models import Q, QuerySet

from jobqueue import public_ids
from jobqueue.access.hiding import declared, mask_of, named_arguments, parameters_of
from jobqueue.core.search import ArgumentCondition, Search, parse
from jobqueue.core.sentences import sentence
from jobqueue.core.states import ENDED, Status
from jobqueue.core.targets import Target
from jobqueue.db import Now, open_jobs, overview
from jobqueue.db.json_values import JsonValueIn
from jobqueue.declared import registry
from jobqueue.models import Job, Worker

WINDOW: Final = 200_000
MAX_CHECKED: Final = 50_000  # older open jobs of each state
MAX_MASKED: Final = 2_000  # older open jobs of each state whose rows are read, in a search by arguments or by the message
MAX_TENANTS: Final = 1000
MAX_COUNTED: Final = 10_000
MAX_WORKERS: Final = 1000
FOUND_BY_INDEX: Final = (Status.PAUSED, Status.ERROR, Status.CANCELED, Status.RUNNING, Status.QUEUED)
CHUNK: Final = 500
UNREAD: Final = ("result", "history", "options", "webhook_url")  # columns that can be large


@dataclass(frozen=True, slots=True)
class Page:
    """A page of jobs, newest first. `after` is the number to continue after, or None; `scope` says what was searched, or "" for all."""

    jobs: list[Job]
    after: int | None
    scope: str


def parsed(text: str) -> Search:
    """Return the conditions of a text; raise `InvalidSearch`. The secret arguments of all registered tasks cannot be searched for."""
    entries = [entry for path in task_paths() if (entry := registry.find(path)) is not None]
    return parse(text, public_ids.job_id_of, {name for entry in entries for name in entry.secret})


def task_paths() -> list[str]:
    """Return the paths of all registered tasks, as far as their modules can be imported."""
    declared("")
    return registry.paths()


def tasks_like(text: str) -> list[str]:
    """Return a text and the registered tasks' paths that contain it: the database compares only whole paths.

    "=PATH" is exactly this path.
    """
    if text.startswith("="):
        return [text[1:]]
    return [*(path for path in task_paths() if text.lower() in path.lower()), text]


def condition(search: Search, now: datetime | None = None) -> Q:
    """Return the condition of a search by the stored values; `now` is the time from which `since:2h` counts, by default the present."""
    condition = Q() if search.job_id is None else Q(pk=search.job_id)
    for name, text in search.texts.items():
        condition &= _BY_FIELD[name](text) if name in _BY_FIELD else Q(**{name: text})
    for name, when in search.times.items():
        at = when if isinstance(when, datetime) else (now or Now()) - when
        side = "lt" if name == "until" else "gte"
        ended = Q(**{f"finished_at__{side}": at})
        # The statuses are those of the index by the time of the end.
        condition &= Q(ended, status__in=ENDED) if name == "ended" else ended | Q(finished_at__isnull=True, **{f"created_at__{side}": at})
    for argument in search.arguments:
        condition &= _argument(argument)
    return condition


def matches(search: Search, job: Job) -> bool:
    """Return whether the masked values of a job, which was read with all columns, meet a search by arguments or by its message."""
    text = search.texts.get("error")
    if text is not None and text.casefold() not in mask_of(job)(job.message).casefold():
        return False
    named = named_arguments(job) if search.arguments else {}
    return all(_has_value(_value_at(named, argument.path), argument.values) for argument in search.arguments)


def page(jobs: QuerySet[Job], search: Search, limit: int, after: int | None = None) -> Page:
    """Return up to `limit` of the jobs that meet a search, the newest first, with numbers below `after`."""
    result, scope = first_matching(jobs.filter(condition(search)), search, limit + 1, after)
    return Page(result[:limit], result[limit - 1].pk if len(result) > limit else None, scope)


def first_matching(
    jobs: QuerySet[Job],
    search: Search,
    most: int,
    after: int | None = None,
    columns: tuple[str, ...] = (),
    statuses: Sequence[str] = tuple(open_jobs.OPEN),
) -> tuple[list[Job], str]:
    """Return up to `most` of the jobs that meet the condition of a search (see `Reach`), the newest first, and what was searched."""
    reach = Reach(jobs, search, columns, statuses)
    found = list(itertools.islice(reach.newest(most, after), most))
    return found, reach.scope


def found_by_index(search: Search) -> bool:
    """Return whether indexes find all jobs that meet a search, however old."""
    if search.job_id is not None:
        return True
    if search.arguments or {*search.times} - {"ended"}:
        return False
    texts = dict(search.texts)
    status = texts.pop("status", Status.ERROR)
    if "waiting" in texts:
        return len(texts) == 1 and status in (Status.PENDING, Status.ERROR)
    if "kind" in texts:
        return len(texts) == 1 and search.texts.get("status") == Status.ERROR
    return not texts and (status in FOUND_BY_INDEX or "ended" in search.times)


class Reach:
    """The jobs that a search covers at bounded cost.

    To read and mask the older open jobs takes long, so in a search by arguments or by the message, they are searched
    only if no newer job is found.
    """

    def __init__(
        self,
        jobs: QuerySet[Job],
        search: Search,
        columns: tuple[str, ...] = (),
        statuses: Sequence[str] = tuple(open_jobs.OPEN),
    ) -> None:
        """Keep the jobs that meet the condition of the search; only `columns` are read if the search allows it.

        Of the older open jobs, only those in one of the `statuses` are read.
        """
        ordered = jobs.order_by("-pk")
        rows: Any = ordered.defer(*UNREAD)
        if columns and not search.reads_masked:
            rows = ordered.values_list("pk", *columns, named=True)  # which is several times as fast as a job for each row
        self._jobs: QuerySet[Job] = rows
        self._search = search
        newest = 0 if found_by_index(search) else Job.objects.current.order_by("-pk").values_list("pk", flat=True).first() or 0
        self._before = max(newest - WINDOW, 0)
        self._statuses = statuses
        self._most = MAX_MASKED if search.reads_masked else MAX_CHECKED
        self._reads_older = not search.reads_masked

    @property
    def scope(self) -> str:
        """What was searched, or "" for all jobs."""
        if not self._before:
            return ""
        if not self._reads_older:
            return sentence("The newest %(window)s jobs.", window=WINDOW)
        return sentence(
            "The newest %(window)s jobs, and up to %(checked)s older ones of each open state.", window=WINDOW, checked=self._most
        )

    def newest(self, chunk: int = CHUNK, after: int | None = None) -> Iterator[Job]:
        """Yield the jobs, the newest first; `chunk` is how many are read at a time."""
        rows = self._jobs if after is None else self._jobs.filter(pk__lt=after)
        found = None
        for found in self._read(rows.filter(pk__gt=self._before) if self._before else rows, chunk):
            yield found
        if not self._before or (self._search.reads_masked and found is not None):
            return
        self._reads_older = True
        ids = [job_id for job_id in self._older() if job_id <= self._before and (after is None or job_id < after)]
        for first in range(0, len(ids), MAX_COUNTED):
            yield from self._read(rows.filter(pk__in=ids[first : first + MAX_COUNTED]), chunk)

    def _read(self, rows: QuerySet[Job], chunk: int) -> Iterator[Job]:
        return _matching(rows, self._search, chunk)

    def _older(self) -> list[int]:
        return sorted(older_open(self._search, self._before, self._most, self._statuses)[0], reverse=True)


def _matching(rows: QuerySet[Job], search: Search, chunk: int) -> Iterator[Job]:
    """Yield those of the jobs, the newest first, whose masked values meet a search."""
    after: int | None = None
    while True:
        read = list((rows if after is None else rows.filter(pk__lt=after))[:chunk])
        yield from (job for job in read if matches(search, job))
        if len(read) < chunk:
            return
        after = read[-1].pk


def newest_matching(jobs: QuerySet[Job], search: Search, most: int) -> list[int]:
    """Return up to `most` of the jobs whose masked values meet a search, the newest first."""
    rows = jobs.order_by("-pk").defer(*UNREAD)
    return [job.pk for job in itertools.islice(_matching(rows, search, most), most)]


def older_open(search: Search, before: int, most: int, statuses: Sequence[str] = tuple(open_jobs.OPEN)) -> tuple[list[int], bool]:
    """Return the open jobs with numbers up to `before` that a search can find, and whether some were not checked.

    Their queue, tenant, task and status are those of the search, or they hold its target or wait for it. If the search
    names no status, they have one of the `statuses`. At most `most` jobs of each state are checked.
    """
    texts = search.texts
    if "target" in texts:
        return in_line(texts["target"], texts.get("tenant")), False
    wanted: dict[str, list[str]] = {name: [texts[name]] for name in ("queue", "tenant") if name in texts}
    if "task" in texts:
        wanted["task"] = tasks_like(texts["task"])
    chosen = [texts["status"]] if "status" in texts else statuses
    return open_jobs.open_jobs(Job.objects.database, chosen, before, wanted, most)


def in_line(target: str, tenant: str | None) -> list[int]:
    """Return the jobs that hold a target or wait for it, of one tenant or (None) of all."""
    database = Job.objects.database
    tenants = overview.tenants_in_lines(database, MAX_TENANTS) if tenant is None else [tenant]
    heads = [head for head in overview.target_heads(database, [Target(name, target) for name in tenants]) if head.job_ids]
    return [job_id for head in heads for job_id in overview.members(database, Target(head.tenant, head.target), MAX_COUNTED)]


def _worker(text: str) -> Q:
    """Return the condition that a worker runs the job or ran it last; it is named by its id, or by host and process as in "web1:4711"."""
    try:
        owners = [str(UUID(text))]
    except ValueError:
        host, _, pid = text.rpartition(":")
        number = int(pid) if pid.isascii() and pid.isdigit() and len(pid) < 10 else -1
        owners = _owners(Q(host=host, pid=number))
    return _owned_by(owners)


def _release(text: str) -> Q:
    """Return the condition that a worker of a release runs the job or ran it last, or that the last failed run has the release."""
    return _owned_by(_owners(Q(release=text))) | Q(JsonValueIn("history", (-1, "release"), [text]))


def _owners(wanted: Q) -> list[str]:
    workers = Worker.objects.using(Job.objects.database.alias).filter(wanted).order_by("-heartbeat_at")
    return [str(worker_id) for worker_id in workers.values_list("pk", flat=True)[:MAX_WORKERS]]


def _owned_by(owners: list[str]) -> Q:
    return Q(lease_owner__in=owners) | Q(JsonValueIn("worker_ids", (-1,), owners), lease_owner="") if owners else Q(pk__in=[])


def _argument(argument: ArgumentCondition) -> Q:
    """Return the condition for an argument: by its name, and by its position in the tasks that have such a parameter."""
    name, *rest = argument.path
    positions = defaultdict[int, list[str]](list)
    for path in task_paths():
        if name in (names := parameters_of(path)):
            positions[names.index(str(name))].append(path)
    condition = Q(JsonValueIn("kwargs", argument.path, argument.values))
    for position, paths in positions.items():
        condition |= Q(JsonValueIn("args", (position, *rest), argument.values), task__in=paths)
    return condition


def _value_at(value: Any, path: tuple[str | int, ...]) -> Any:
    """Return the value at a path, or an object that equals nothing if there is none."""
    for step in path:
        kind: Any = dict if isinstance(step, str) else list
        try:
            value = value[step] if isinstance(value, kind) else object()
        except LookupError:
            return object()
    return value


def _has_value(value: Any, values: tuple[Any, ...]) -> bool:
    return any(value == wanted and isinstance(value, bool) == isinstance(wanted, bool) for wanted in values)


_BY_FIELD: Final = {
    "error": lambda text: Q(message__icontains=text),
    "kind": lambda text: Q(error_key=text),
    "task": lambda text: Q(task__in=tasks_like(text)),
    "waiting": lambda text: Q(status=Status.PENDING, waiting_for=text),
    "worker": _worker,
    "release": _release,
}
