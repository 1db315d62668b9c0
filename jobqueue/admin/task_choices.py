"""The registered tasks that this process can import; a broken task module must not break a page."""

import logging

from jobqueue.core import repeats
from jobqueue.declared import registry


def entry(path: str) -> registry.RegisteredTask | None:
    """Return the registry's entry of a path, or None."""
    _discover()
    return registry.find(path)


def paths() -> list[str]:
    """Return the paths of all registered tasks."""
    _discover()
    return registry.paths()


def queues() -> set[str]:
    """Return the default queues of the registered tasks."""
    return {entry.task.queue_name for path in paths() if (entry := registry.find(path)) is not None}


def _discover() -> None:
    try:
        registry.discover()
    except Exception as error:  # noqa: BLE001 - a project's module can raise any exception during its import
        repeats.log(logging.WARNING, "The admin knows only some of the tasks, since a module of tasks cannot be imported: %s", error)
