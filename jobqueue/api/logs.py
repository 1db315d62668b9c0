"""The handler of the endpoint that returns what a job has logged."""

from __future__ import annotations

import itertools
from dataclasses import asdict
from typing import Any

from django.http import HttpRequest

from jobqueue.api import params
from jobqueue.api.params import Given
from jobqueue.insight.log import LEVELS, log_entries


def show_log(request: HttpRequest, user: Any, given: Given) -> tuple[int, dict[str, Any]]:
    """Return a page of what a job has logged, the oldest line first."""
    most, after = params.limit(request), params.after(request) or 0
    level = LEVELS[params.choice(request, "level", [*LEVELS], "debug")]
    attempt = params.whole(request, "attempt", 1, 999_999_999, 0) or None
    entries = log_entries(params.job(request, user, given), after=after, level=level, attempt=attempt)
    lines = list(itertools.islice(entries, most + 1))
    shown = lines[:most]
    return 200, {
        "lines": [{**asdict(line), "at": line.at.isoformat()} for line in shown],
        "more": len(lines) > most,
        "after": shown[-1].id if shown else after or None,
    }
