"""The masks of jobs and schedules. The arguments, the metadata and the task determine which names and values are secret."""

from __future__ import annotations

import inspect
import logging
from typing import Any

from jobqueue.core import repeats
from jobqueue.core.capping import WHOLE, capped
from jobqueue.core.masking import Mask
from jobqueue.declared import registry
from jobqueue.declared.registry import RegisteredTask


def mask_of(row: Any) -> Mask:
    """Return the mask of a job or a schedule that was read with all columns; it is created once for each row object."""
    found: Mask | None = row.__dict__.get("_mask")
    if found is None:
        entry = declared(row.task)
        func, takes_context, fields = (entry.func, entry.takes_context, entry.secret) if entry is not None else (None, False, ())
        metadata = getattr(row, "metadata", None)
        found = row.__dict__["_mask"] = Mask.of_job(func, row.args, row.kwargs, metadata, takes_context=takes_context, fields=fields)
    return found


def arguments_of(row: Any, most: int = WHOLE) -> tuple[Any, Any]:
    """Return the arguments of a job or a schedule with masked secrets.

    A column whose value has another type is also masked. Only the first `most` characters of each column are
    returned, by default all.
    """
    mask = mask_of(row)
    args: Any = capped(row.args, most, mask)
    kwargs: Any = capped(row.kwargs, most, mask)
    if not isinstance(row.args, list) or not isinstance(row.kwargs, dict):
        return mask.value(args), mask.value(kwargs)
    entry = declared(row.task)
    func, takes_context = (entry.func, entry.takes_context) if entry is not None else (None, False)
    args, kwargs = mask.call(func, args, kwargs, takes_context=takes_context)
    return args, _in_order(func, kwargs)


def _in_order(func: Any, kwargs: dict[Any, Any]) -> dict[Any, Any]:
    """Return arguments in the order of the function's signature, because PostgreSQL does not keep the order in which they were given."""
    try:
        names = [*inspect.signature(func).parameters] if func is not None else []
    except (TypeError, ValueError):
        names = []
    return {name: kwargs[name] for name in [*(name for name in names if name in kwargs), *(name for name in kwargs if name not in names)]}


def declared(path: str) -> RegisteredTask | None:
    """Return the registry's entry of a task, or None. Import the task modules of the user's project first."""
    try:
        registry.discover()
    except Exception as error:  # noqa: BLE001 - a module of the user's project can raise any exception during its import
        repeats.log(logging.WARNING, "Only some of the tasks are known here, since a module of tasks cannot be imported: %s", error)
    return registry.find(path)
