"""The registered tasks: only these run, whatever a row says.

A `JobTask` registers itself when it is declared. `discover` imports ``<app>/tasks.py`` of every installed app and the modules of
`TASK_MODULES`, and adds the plain tasks that it finds there.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from inspect import iscoroutinefunction
from typing import Any

from django.apps import apps
from django.utils.module_loading import module_has_submodule

from jobqueue import backoff, compat, conf
from jobqueue.phases import Phase

_tasks: dict[str, Any] = {}
_entries: dict[str, Entry] = {}
_discovered = threading.Event()
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Entry:
    """Hold what a run needs to know of a task."""

    path: str
    task: Any
    func: Callable[..., Any]
    is_async: bool
    takes_context: bool
    retry_on: tuple[type[BaseException], ...]
    backoff: Callable[..., Any]
    transactional: bool
    phases: tuple[Phase, ...] = ()


def register(task: Any) -> None:
    """Remember a task under its path; the first declaration of a path stays, ``using()`` makes no new one."""
    if not hasattr(task.func, "placeholder"):
        _tasks.setdefault(task.module_path, task)


def discover() -> None:
    """Import the modules that declare tasks, once."""
    with _lock:  # two threads must not see half of it
        if _discovered.is_set():
            return
        names = [f"{app.name}.tasks" for app in apps.get_app_configs() if app.module and module_has_submodule(app.module, "tasks")]
        for name in (*names, *conf.current().task_modules):
            for value in vars(importlib.import_module(name)).values():
                if isinstance(value, compat.Task):
                    register(value)
        _discovered.set()


def find(path: str) -> Entry | None:
    """Return the entry of a path, or None where no registered task has it."""
    entry = _entries.get(path)
    if entry is None and (task := _tasks.get(path)) is not None:
        entry = _entries[path] = Entry(
            path=path,
            task=task,
            func=task.func,
            is_async=iscoroutinefunction(task.func),
            takes_context=task.takes_context,
            retry_on=getattr(task, "retry_on", ()),
            backoff=getattr(task, "backoff", backoff.DEFAULT),
            transactional=getattr(task, "transactional", False),
            phases=getattr(task, "phases", ()),
        )
    return entry


def paths() -> list[str]:
    """Return the paths of all registered tasks."""
    return sorted(_tasks)
