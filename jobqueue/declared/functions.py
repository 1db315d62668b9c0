"""The rules for functions that can be tasks, and the place of their declaration.

A job stores the path of its task, ``module.qualname``. So a path must name one function, and a worker must find it
by importing the module.
"""

from __future__ import annotations

import functools
import inspect
import sys
from typing import Any

from jobqueue import compat
from jobqueue.core.texts import safe_repr
from jobqueue.exceptions import InvalidOption

MOVE = "Declare a function with def or async def at the top level of a module"

PARTS = {
    "<lambda>": f"all lambdas of a module share one path. {MOVE}, which has a name",
    "<locals>": f"it is defined inside of another function, so workers cannot import it. {MOVE}; in a decorator, apply functools.wraps",
    ".": f"it is defined in a class, so it is a method. {MOVE}",
}
"""The parts of a qualified name that show that a function is not at the top level of its module, with the reason."""


class InvalidTaskFunction(InvalidOption, compat.InvalidTask):  # type: ignore[misc,valid-type]
    """The error for a function that cannot be a task; it is also Django's error for this."""


def check_function(func: Any) -> None:
    """Reject a function that a worker cannot find by its path, or whose body does not run when it is called."""
    if reason := _refusal(func):
        raise InvalidTaskFunction(f"{safe_repr(func)} cannot be a task: {reason}.")


def _refusal(func: Any) -> str:
    """Return the reason why this cannot be a task, or ""."""
    if isinstance(func, compat.Task):
        return "it is a task already. Remove one of the two decorators"
    if isinstance(func, functools.partial):
        return f"a functools.partial has no path that a job could store. {MOVE} that calls it"
    if inspect.ismethod(func):
        return f"it is a bound method, and a job stores no object. {MOVE} that loads the object and calls the method"
    if not inspect.isfunction(func):
        return f"a {type(func).__qualname__} is not a plain function, so it has no path that a job could store. {MOVE} that calls it"
    if inspect.isgeneratorfunction(func) or inspect.isasyncgenfunction(func):
        return "it is a generator, whose body does not run when it is called. Return a list in place of yield"
    return next((reason for part, reason in PARTS.items() if part in func.__qualname__), "")


def is_same_source(first: Any, second: Any) -> bool:
    """Return whether two functions are declared at the same place, as after a reload of their module."""
    return place(first) == place(second)


def is_other_wrapper(first: Any, second: Any) -> bool:
    """Return whether two different functions wrap the same one."""
    return first is not second and inspect.unwrap(first) is inspect.unwrap(second)


def place(func: Any) -> str:
    """Return the file and the line at which a function begins."""
    code = getattr(inspect.unwrap(func), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else safe_repr(func)


def places(first: Any, second: Any) -> str:
    """Return the places at which two functions begin, as text for an error."""
    if is_same_source(first, second):
        return f"the function at {place(first)}, wrapped in two ways"
    return f"{place(first)} and {place(second)}"


def load_of(func: Any) -> object:
    """Return an object that identifies the execution of a function's module: each import and reload sets a new ``__spec__``.

    A module without a file is an interactive shell, in which each declaration counts as a new execution.
    """
    module = sys.modules.get(func.__module__)
    return getattr(module, "__spec__", None) if hasattr(module, "__file__") else object()


def declaring_module() -> Any:
    """Return the ``__spec__`` of the executing module that is nearest to the caller; None in an interactive shell."""
    frame = sys._getframe(1)
    while frame.f_code.co_name != "<module>" and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_globals.get("__spec__")
