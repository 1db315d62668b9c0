"""Imports of the project's modules that declare tasks, schedules and duties.

A module that fails is logged with its traceback, recorded and skipped, so that the other modules still work.
"""

from __future__ import annotations

import importlib
import logging
from importlib.util import find_spec
from types import ModuleType

from jobqueue.core.masking import PLAIN
from jobqueue.core.texts import exception_summary
from jobqueue.exceptions import Interrupted, TimeLimitExceeded, is_for_the_process

logger = logging.getLogger("jobqueue")

_failures: dict[str, str] = {}


def load(name: str, *, strict: bool = False) -> ModuleType | None:
    """Return an imported module, or None if it fails or has failed before. If `strict`, retry and raise its error."""
    if name in _failures and not strict:
        return None
    try:
        module = importlib.import_module(name)
    except BaseException as error:
        # These are not the module's errors: Ctrl-C, and requests to stop the task that runs in this thread.
        if strict or isinstance(error, Interrupted | TimeLimitExceeded) or is_for_the_process(error):
            raise
        _failures[name] = exception_summary(error, PLAIN)
        logger.exception("Cannot import %s: this process runs without the tasks, schedules and duties that it declares.", name)
        return None
    _failures.pop(name, None)
    return module


def exists(name: str) -> bool:
    """Return whether the module exists; this imports its parents."""
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError, AttributeError):  # a parent is missing or is not a package, or the module has no spec
        return False


def failures() -> dict[str, str]:
    """Return the modules that this process could not import, with the error of each."""
    return dict(_failures)
