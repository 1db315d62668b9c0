"""What a claimed job's row says that its task is called with."""

from __future__ import annotations

import json
from typing import Any

from jobqueue import texts
from jobqueue.db import Claimed

_decode = json.JSONDecoder().raw_decode


def arguments(job: Claimed) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of a job's call; raise TypeError where the row holds something else, ValueError where it holds no JSON."""
    args, kwargs = _read(job.args), {} if job.kwargs == "{}" else _read(job.kwargs)
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        raise TypeError(
            f"The job's row holds args {texts.shorten(job.args, 80)} and kwargs {texts.shorten(job.kwargs, 80)};"
            " they must be a JSON list and a JSON object."
        )
    return args, kwargs


def _read(text: str) -> Any:
    # The database has checked that it is JSON. This skips the search for white space around it, which takes longer than all the rest.
    return _decode(text)[0] if text[:1] in ("[", "{") else json.loads(text)
