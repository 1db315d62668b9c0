"""The tasks API of Django or of its backport; no other module knows which of the two is used."""

import importlib
from typing import Any

from django.core.exceptions import ImproperlyConfigured

try:
    base: Any = importlib.import_module("django.tasks.base")
    PACKAGE = "django.tasks"
except ImportError:
    try:
        base = importlib.import_module("django_tasks.base")
        PACKAGE = "django_tasks"
    except ImportError as error:
        raise ImproperlyConfigured("Django below 6.0 needs the backport: pip install 'jobqueue[backport]'.") from error


def module(name: str) -> Any:
    """Import a module of django.tasks, or that of the backport."""
    return importlib.import_module(f"{PACKAGE}.{name}" if name else PACKAGE)


LOGGER_NAME = PACKAGE
exceptions = module("exceptions")
# Django uses other names for these two than the backport.
InvalidTask: type[Exception] = getattr(exceptions, "InvalidTask", None) or exceptions.InvalidTaskError
InvalidTaskBackend: type[Exception] = getattr(exceptions, "InvalidTaskBackend", None) or exceptions.InvalidTaskBackendError
TaskResultDoesNotExist: type[Exception] = exceptions.TaskResultDoesNotExist
TaskResultMismatch: type[Exception] = exceptions.TaskResultMismatch
Task: Any = base.Task
TaskResult: Any = base.TaskResult
TaskResultStatus: Any = base.TaskResultStatus
TaskError: Any = base.TaskError
TaskContext: Any = base.TaskContext


def task_backends() -> Any:
    """Return the handler of the configured task backends, by alias."""
    return module("").task_backends
