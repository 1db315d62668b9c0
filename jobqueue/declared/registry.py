"""The registered tasks: a worker runs only these, whatever path a row holds.

A `JobTask` registers itself when it is declared. `discover` imports ``<app>/tasks.py`` of each installed app and
the modules of `TASK_MODULES`, and adds the plain tasks that it finds there. `find_or_load` imports another module
of an app when a job names it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.apps import apps
from django.utils.module_loading import module_has_submodule

from jobqueue import compat, conf
from jobqueue.core import backoff
from jobqueue.core.phases import Phase
from jobqueue.declared import functions, imports
from jobqueue.exceptions import InvalidOption

# A run reads these options from the first declaration.
OPTIONS_READ_AT_RUN = ("takes_context", "backoff", "retry_on", "transactional", "phases", "secret")

_tasks: dict[str, Any] = {}
_load_ids: dict[str, object] = {}
_declaring_modules: dict[str, Any] = {}
_entries: dict[str, RegisteredTask] = {}
_tried_modules: set[str] = set()
_discovered = threading.Event()
_lock = threading.RLock()  # reentrant, because a module that is imported under it can find a task by its path


@dataclass(frozen=True, slots=True)
class RegisteredTask:
    """The properties of a task that a run needs."""

    path: str
    task: Any
    func: Callable[..., Any]
    is_async: bool
    takes_context: bool
    retry_on: tuple[type[BaseException], ...]
    backoff: Callable[..., Any]
    transactional: bool
    phases: tuple[Phase, ...] = ()
    secret: tuple[str, ...] = ()  # names of arguments that are secret, in addition to those of all tasks
    schedulable: bool = True


def register(task: Any) -> None:
    """Register a task under its path.

    A later task of the same function, such as a copy made by `using()`, is ignored. Reloading the module replaces the
    task. Raise `InvalidOption` for a different function with the same path, because a job stores only the path.
    """
    if hasattr(task.func, "placeholder"):
        return
    path, load = task.module_path, functions.load_of(task.func)
    known = _tasks.get(path)
    if known is not None and known.func is task.func:
        _refuse_other_options(known, task)
        return
    declarer = functions.declaring_module()
    if known is not None and _load_ids[path] is load and _is_conflict(path, known.func, task.func, declarer):
        raise functions.InvalidTaskFunction(
            f"Two tasks have the path {path!r}: {functions.places(known.func, task.func)}. A job stores only the path, so "
            f"the same function would run for both. Rename one of them."
        )
    _tasks[path], _load_ids[path], _declaring_modules[path] = task, load, declarer
    _entries.pop(path, None)


def _is_conflict(path: str, known: Any, func: Any, declarer: Any) -> bool:
    if not functions.is_same_source(known, func):
        return True
    before = _declaring_modules[path]  # perhaps only the module with the wrapper was reloaded
    is_reload = declarer is None or (before is not None and before is not declarer and before.name == declarer.name)
    return functions.is_other_wrapper(known, func) and not is_reload


def _refuse_other_options(known: Any, task: Any) -> None:
    """Reject a second declaration of a function that differs in an `OPTIONS_READ_AT_RUN` option: runs use the first declaration."""
    if not hasattr(known, "backoff") or not hasattr(task, "backoff") or known.backend != task.backend:
        return  # a plain task has no such options, and a test backend runs the task object that it was given
    for name in OPTIONS_READ_AT_RUN:
        if getattr(known, name) != getattr(task, name):
            raise InvalidOption(
                f"{functions.place(task.func)}: {task.module_path} is declared twice, with different values of {name}. "
                "Every run would use the value of the first declaration. Declare another function that calls this one."
            )


def discover(*, strict: bool = False) -> None:
    """Import the modules that declare tasks, once; skip a module that fails. If `strict`, raise its error."""
    with _lock:  # another thread must not see only a part of the tasks
        if _discovered.is_set() and not (strict and imports.failures()):
            return
        for name in _modules():
            module = imports.load(name, strict=strict)
            if module is None:
                _forget_unfinished()
            else:
                _add_from(module)
        _discovered.set()


def _forget_unfinished() -> None:
    """Remove the tasks of modules whose import failed halfway: their functions may use names that the module has not defined."""
    for path, task in list(_tasks.items()):
        if task.func.__module__ not in sys.modules:
            forget(path)


def forget(path: str) -> None:
    """Remove a task, so that this process does not run its jobs."""
    del _tasks[path], _load_ids[path], _declaring_modules[path]
    _entries.pop(path, None)


def _modules() -> Iterator[str]:
    for app in apps.get_app_configs():
        if app.module and module_has_submodule(app.module, "tasks"):
            yield f"{app.name}.tasks"
    yield from conf.current().task_modules


def _add_from(module: ModuleType) -> None:
    for value in list(vars(module).values()):
        if isinstance(value, compat.Task):
            register(value)


def find(path: str) -> RegisteredTask | None:
    """Return the entry of a path, or None if no registered task has it."""
    entry = _entries.get(path)
    if entry is None and (task := _tasks.get(path)) is not None:
        entry = _entries[path] = RegisteredTask(
            path=path,
            task=task,
            func=task.func,
            is_async=iscoroutinefunction(task.func),
            takes_context=task.takes_context,
            retry_on=getattr(task, "retry_on", ()),
            backoff=getattr(task, "backoff", backoff.DEFAULT),
            transactional=getattr(task, "transactional", False),
            phases=getattr(task, "phases", ()),
            secret=getattr(task, "secret", ()),
            schedulable=getattr(task, "schedulable", True),
        )
    return entry


def find_or_load(path: str) -> RegisteredTask | None:
    """Return the entry of a path; import its module once if it belongs to an installed app or a module of `TASK_MODULES`."""
    discover()
    name = path.rpartition(".")[0]
    if path not in _tasks and name not in _tried_modules and _may_import(name):
        with _lock:
            _tried_modules.add(name)
            if imports.exists(name) and (module := imports.load(name)) is not None:
                _add_from(module)
            _forget_unfinished()
    return find(path)


def _may_import(name: str) -> bool:
    allowed = [*(app.name for app in apps.get_app_configs()), *conf.current().task_modules]
    return any(f"{name}.".startswith(f"{module}.") for module in allowed)


def paths() -> list[str]:
    """Return the paths of all registered tasks."""
    return sorted(_tasks)
