"""The registered tasks that this process can import; a broken task module must not break a page."""

import inspect
import logging
from typing import Any

from jobqueue.core import repeats
from jobqueue.core.masking import mask_text
from jobqueue.declared import registry


def entry(path: str) -> registry.RegisteredTask | None:
    """Return the registry's entry of a path, or None."""
    _discover()
    return registry.find(path)


def paths() -> list[str]:
    """Return the paths of all registered tasks."""
    _discover()
    return registry.paths()


def signature(func: Any) -> str:
    """Return the name and the parameters of a function as code, masked, since a default can be a secret; "" if it shows none."""
    try:
        return mask_text(f"{func.__name__}{inspect.signature(func)}")
    except (TypeError, ValueError):
        return ""


def queues() -> set[str]:
    """Return the default queues of the registered tasks."""
    return {entry.task.queue_name for path in paths() if (entry := registry.find(path)) is not None}


def _discover() -> None:
    try:
        registry.discover()
    except Exception as error:  # noqa: BLE001 - a project's module can raise any exception during its import
        repeats.log(logging.WARNING, "The admin knows only some of the tasks, since a module of tasks cannot be imported: %s", error)
