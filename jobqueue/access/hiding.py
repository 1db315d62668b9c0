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


def named_arguments(row: Any) -> dict[str, Any]:
    """Return the arguments with masked secrets by their names; positional ones only if the task is registered."""
    args, kwargs = arguments_of(row)
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        return {}
    return {**dict(zip(parameters_of(row.task), args, strict=False)), **kwargs}


def parameters_of(path: str) -> list[str]:
    """Return the names of the positional arguments of a task, without its context; none if it is not registered."""
    entry = declared(path)
    if entry is None:
        return []
    found = [one.name for one in _parameters(entry.func) if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    return found[entry.takes_context :]


def _in_order(func: Any, kwargs: dict[Any, Any]) -> dict[Any, Any]:
    """Return arguments in the order of the function's signature, because PostgreSQL does not keep the order in which they were given."""
    names = [one.name for one in _parameters(func)] if func is not None else []
    return {name: kwargs[name] for name in [*(name for name in names if name in kwargs), *(name for name in kwargs if name not in names)]}


def _parameters(func: Any) -> list[inspect.Parameter]:
    try:
        return [*inspect.signature(func).parameters.values()]
    except (TypeError, ValueError):
        return []


def declared(path: str) -> RegisteredTask | None:
    """Return the registry's entry of a task, or None. Import the task modules of the user's project first."""
    try:
        registry.discover()
    except Exception as error:  # noqa: BLE001 - a module of the user's project can raise any exception during its import
        repeats.log(logging.WARNING, "Only some of the tasks are known here, since a module of tasks cannot be imported: %s", error)
    return registry.find(path)
