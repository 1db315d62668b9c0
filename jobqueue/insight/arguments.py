"""The arguments of many jobs at bounded cost: masked, by their names, and only if they are small."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from django.db.models import QuerySet

from jobqueue.access.hiding import arguments_of, parameters_of
from jobqueue.core.masking import MASK
from jobqueue.db.small_json import SmallJson
from jobqueue.models import Job

COLUMNS: Final = ("args", "kwargs", "metadata")  # the metadata can contain secrets that the arguments repeat
MAX_VALUE: Final = 40
MAX_BRIEF: Final = 120
LARGE: Final = "…"


def with_small_arguments(jobs: QuerySet[Job]) -> QuerySet[Job]:
    """Return the jobs with their arguments if these are small; a job's large columns are not read."""
    return jobs.defer(*COLUMNS).annotate(**{f"small_{name}": SmallJson(name) for name in COLUMNS})


def masked_arguments(job: Job) -> list[tuple[str, Any]] | None:
    """Return the masked arguments of a job of `with_small_arguments`, each with its name if it is known; None if they are large."""
    if not all(name in job.__dict__ for name in COLUMNS):
        small = {name: getattr(job, f"small_{name}") for name in COLUMNS}
        if any(value is None for value in small.values()):
            return None
        job.__dict__.update(small)
    args, kwargs = arguments_of(job)
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        return None
    names = parameters_of(job.task)
    return [*((names[at] if at < len(names) else "", value) for at, value in enumerate(args)), *kwargs.items()]


def brief(job: Job) -> str:
    """Return the arguments of a job of `with_small_arguments` in one line, in the order of the function's signature."""
    arguments = masked_arguments(job)
    if arguments is None:
        return LARGE
    shown = (f"{name}={_text(value)}" if name else _text(value) for name, value in arguments)
    return _cut(", ".join(shown), MAX_BRIEF)


def frequent(jobs: Iterable[Job], most: int) -> list[tuple[str, str, int]]:
    """Return the values of arguments that more than one of the jobs have: the name, the value as JSON, the number of jobs."""
    counts: dict[tuple[str, str], int] = {}
    for job in jobs:
        for name, value in masked_arguments(job) or ():
            if name and (value is None or isinstance(value, str | int | float)) and MASK not in str(value) and len(str(value)) <= MAX_VALUE:
                key = (name, json.dumps(value, ensure_ascii=False))
                counts[key] = counts.get(key, 0) + 1
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [(*key, number) for key, number in ordered[:most] if number > 1]


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return _cut(text, MAX_VALUE)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]}…"
