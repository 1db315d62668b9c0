"""The registered tasks, as far as this process can import them: a page must open even where a task module is broken."""

import logging

from jobqueue.core import repeats
from jobqueue.tasks import registry


def entry(path: str) -> registry.Entry | None:
    """Return what is registered under a path, or None."""
    _discover()
    return registry.find(path)


def paths() -> list[str]:
    """Return the paths of all registered tasks."""
    _discover()
    return registry.paths()


def queues() -> set[str]:
    """Return the queues that registered tasks go to by default."""
    return {found.task.queue_name for path in paths() if (found := registry.find(path)) is not None}


def _discover() -> None:
    try:
        registry.discover()
    except Exception as error:  # noqa: BLE001 - a project's module may raise anything while it is imported
        repeats.log(logging.WARNING, "The admin knows only some of the tasks, since a module of tasks cannot be imported: %s", error)
