"""The registry of the duties of the project, which ``@duty`` declares in ``<app>/duties.py`` of each installed app."""

from __future__ import annotations

import contextlib
import inspect
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

from django.apps import apps
from django.utils.module_loading import module_has_submodule

from jobqueue import conf
from jobqueue.core.duty_rules import STRATEGIES
from jobqueue.core.texts import safe_repr
from jobqueue.declared import imports
from jobqueue.duties.base import RESERVED, Duty, FunctionDuty, Strategy
from jobqueue.exceptions import InvalidOption, delay_in_seconds

Function = TypeVar("Function", bound=Callable[[], object])
SHORTEST_SECONDS = 0.05

_factories: dict[str, Callable[[], Duty]] = {}
_places: dict[str, str] = {}
_lock = threading.Lock()


def duty(
    *, name: str, interval: float | timedelta, strategy: Strategy = "lease", rotate_after_seconds: float | None = None
) -> Callable[[Function], Function]:
    """Declare a function without arguments as a duty, which one worker at a time calls every `interval`.

    `name` identifies the duty in the admin, in logs and in the table of leases. It must not change. With the `strategy` "everyone", every
    worker calls the function. After `rotate_after_seconds`, the leader hands over to another worker. If the function returns a whole
    number, it counts as the number of items done. An exception is counted, logged and shown, and does not prevent the next call. Raise
    `InvalidOption` for an invalid option.
    """
    seconds = delay_in_seconds(interval, "interval")
    if seconds < SHORTEST_SECONDS:
        raise InvalidOption(f"interval is {seconds:g} s; it must be at least {SHORTEST_SECONDS} s.")
    if not isinstance(name, str) or not 0 < len(name.strip()) == len(name) <= 200:
        raise InvalidOption(f"name is {safe_repr(name)}; it must be a text of 1 to 200 characters without spaces around it.")
    if name in RESERVED:
        raise InvalidOption(f"name is {name!r}, that of a duty of jobqueue; choose another one, such as 'shop.{name}'.")
    if strategy not in STRATEGIES:
        raise InvalidOption(f'strategy is {safe_repr(strategy)}; it must be "lease" or "everyone".')
    rotate = None if rotate_after_seconds is None else delay_in_seconds(rotate_after_seconds, "rotate_after_seconds")
    if rotate is not None and rotate < (lease := conf.current().duty_lease_seconds):
        raise InvalidOption(f"rotate_after_seconds is {rotate:g}; it must be at least DUTY_LEASE_SECONDS, {lease:g}.")

    def register(function: Function) -> Function:
        _refuse_what_cannot_be_called(function)
        add(name, lambda: FunctionDuty(name, function, seconds, strategy, rotate), f"{function.__module__}.{function.__qualname__}")
        return function

    return register


def _refuse_what_cannot_be_called(function: object) -> None:
    if not callable(function) or inspect.iscoroutinefunction(function):
        raise InvalidOption(f"{safe_repr(function)} cannot be a duty; it must be a plain function, not a coroutine.")
    needed = [
        parameter.name
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is parameter.empty and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if needed:
        raise InvalidOption(f"{safe_repr(function)} cannot be a duty: it is called without arguments, and requires {', '.join(needed)}.")


def duty_transaction() -> contextlib.AbstractContextManager[None]:
    """Return a transaction on the job database in which a duty may write; it begins only if this worker still leads the duty.

    No other worker can become the leader before the transaction ends. Entering it raises `LeadershipLost` if the worker no longer leads.
    Outside of a duty, it is an ordinary transaction.
    """
    from jobqueue.models import Job  # a duty is declared before the models are loaded

    return Job.objects.database.atomic()


def add(name: str, make: Callable[[], Duty], place: str) -> None:
    """Register the factory of a duty; raise `InvalidOption` if a duty from another place has the same name."""
    with _lock:
        before = _places.setdefault(name, place)
        if before != place:
            raise InvalidOption(f"Two duties are named {name!r}: {before} and {place}. Give one of them another name.")
        _factories[name] = make


def discover(*, strict: bool = False) -> dict[str, Callable[[], Duty]]:
    """Import the modules that declare duties, and return the factories of the duties of the project.

    If `strict`, raise the error of a module that cannot be imported.
    """
    for app in apps.get_app_configs():
        if app.module and app.name != "jobqueue" and module_has_submodule(app.module, "duties"):
            imports.load(f"{app.name}.duties", strict=strict)
    return {conf.scoped(name): _scoped(make) for name, make in _factories.items()}


def _scoped(make: Callable[[], Duty]) -> Callable[[], Duty]:
    """Return a factory that gives the duty its name in this service, since another service may have a duty of the same name."""

    def make_scoped() -> Duty:
        duty = make()
        duty.name = conf.scoped(duty.name)
        return duty

    return make_scoped
