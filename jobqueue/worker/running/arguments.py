"""The arguments of a claimed job, read from its row."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from types import NoneType
from typing import Any

from jobqueue.core import texts
from jobqueue.core.masking import Mask
from jobqueue.db import Claimed
from jobqueue.declared.registry import RegisteredTask

MAX_MESSAGE = 1000  # characters
KINDS = {bool: "a boolean", str: "a text", int: "a number", float: "a number", list: "a list", dict: "an object", NoneType: "null"}
EMPTY = ("{}", "[]")
_decode = json.JSONDecoder().raw_decode


def arguments(job: Claimed) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of a job's call; raise ValueError if the row holds no JSON, TypeError if it holds other types."""
    args, kwargs = _read(job.args), {} if job.kwargs == "{}" else _read(job.kwargs)
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        raise TypeError(
            f"The job's row holds {_kind(args)} as args and {_kind(kwargs)} as kwargs; they must be a JSON list and a JSON object."
        )
    return args, kwargs


def _kind(value: Any) -> str:
    """Return the JSON name of a value's type; the value itself may be a secret."""
    return next(name for kind, name in KINDS.items() if isinstance(value, kind))


class PipelineArguments:
    """The arguments of a pipeline. Each phase gets new objects, as it does in an attempt that begins with it."""

    def __init__(self, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Store the arguments as they were read from the job's row."""
        self._text = json.dumps([args, kwargs])

    def to(self, func: Callable[..., Any], context: Any) -> Any:
        """Call a phase with its context and new copies of the arguments."""
        args, kwargs = json.loads(self._text)
        return func(context, *args, **kwargs)


def mask_of_run(job: Claimed, entry: RegisteredTask | None, saved: str | None = None) -> Mask:
    """Return the mask that hides the secrets of a claimed job; `saved` is the metadata that its run has saved.

    A text that cannot be read contributes no secrets.
    """
    args, kwargs = _read_or_none(job.args), _read_or_none(job.kwargs)
    read = (args, kwargs, [_read_or_none(text) for text in (job.metadata, saved or "{}") if text not in EMPTY])
    if entry is None:
        return Mask.of_job(None, *read)
    return Mask.of_job(entry.func, *read, takes_context=entry.takes_context, fields=entry.secret)


def shown_message(message: str, mask: Mask) -> str:
    """Return the message of a progress report as it is stored: first masked, then cut."""
    return texts.clean(mask(message[: MAX_MESSAGE + mask.overlap])[:MAX_MESSAGE])


def _read_or_none(text: str) -> Any:
    if text in EMPTY:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _read(text: str) -> Any:
    # The database has checked that it is JSON. `raw_decode` skips the search for surrounding white space, which takes most of the time.
    return _decode(text)[0] if text[:1] in ("[", "{") else json.loads(text)
