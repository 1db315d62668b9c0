"""Declarations of schedules in code, and their checks (`jobs.enqueue_scheduled` creates their jobs).

A worker writes the declarations into rows when it starts (`sync_schedules`). The code decides what is enqueued and
when. Operators decide whether: enabling and disabling survives restarts. A schedule that is no longer declared is
*retired*: it is not enqueued, but its row stays with its ticks, and is used again if it is declared again (as in a
rollback).
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.utils import timezone

from jobqueue import clock, conf
from jobqueue.core import cron as crons
from jobqueue.core import payload
from jobqueue.core.sentences import sentence
from jobqueue.core.texts import clean, safe_repr
from jobqueue.declared import registry
from jobqueue.exceptions import InvalidArgumentType, InvalidArgumentValue, InvalidOption
from jobqueue.tasks import options

if TYPE_CHECKING:  # a schedule can be declared before the models are loaded
    from jobqueue.models import Schedule

MAX_NAME = 200
MAX_MISFITS = 10  # that one error names
DEFINITION = (
    "task", "args", "kwargs", "queue", "priority", "tenant", "target", "cron", "interval_seconds", "time_zone", "missed", "missed_limit"
)  # fmt: skip

_declared: dict[str, Declaration] = {}


@dataclass(frozen=True, slots=True)
class Declaration:
    """The declaration of one schedule; the fields are those of the row."""

    name: str
    task: str
    args: list[Any]
    kwargs: dict[str, Any]
    queue: str
    priority: int | None
    tenant: str
    target: str
    cron: str
    interval_seconds: int | None
    time_zone: str
    missed: str
    missed_limit: int
    enabled: bool
    declared_in: str = field(default="", compare=False)

    def row(self) -> Schedule:
        """Return a row with the values of the declaration."""
        from jobqueue.models import Schedule

        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return Schedule(**values, source=Schedule.Source.CODE, service=conf.service())

    @property
    def timing(self) -> crons.Timing:
        """The times at which it is due, in the form of the row."""
        return crons.Timing(self.cron, self.interval_seconds, self.time_zone)

    @property
    def options(self) -> dict[str, Any]:
        """The options of its jobs that replace those of the task, in the form of the row."""
        given = {"queue_name": self.queue, "priority": self.priority, "tenant": self.tenant, "target": self.target}
        return {name: value for name, value in given.items() if value not in ("", None)}


def schedule(
    name: str,
    task: Any,
    /,
    *,
    cron: str = "",
    interval: int | timedelta | None = None,
    time_zone: str | None = None,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    queue_name: str | None = None,
    priority: int | None = None,
    tenant: str | None = None,
    target: str | None = None,
    missed: str = "once",
    missed_limit: int = 100,
    enabled: bool = True,
) -> None:
    """Declare that a task is enqueued periodically: by a cron expression, or at each `interval` (seconds or a timedelta).

    `time_zone` is that of the expression (None: the project's `TIME_ZONE`). `missed` sets what happens to times
    that passed while no worker ran: "once" (one late job for all of them), "skip", or "all" (the newest
    `missed_limit`). Declare it in the modules of the tasks, with the task itself or its dotted path. `enabled`
    applies when the row is created; later, operators decide.
    """
    check_name(name)
    args_text, kwargs_text = payload.dumps_arguments(args, kwargs or {})
    declaration = Declaration(
        name=name,
        task=_path(task),
        args=json.loads(args_text),  # as the row returns them; otherwise, each start would find a difference
        kwargs=json.loads(kwargs_text),
        queue=queue_name or "",
        priority=priority,
        tenant=tenant or "",
        target=target or "",
        cron=cron,
        interval_seconds=_seconds(interval),
        time_zone=timezone.get_default_timezone_name() if time_zone is None else time_zone,
        missed=missed,
        missed_limit=missed_limit,
        enabled=enabled,
        declared_in=_caller(),
    )
    check(declaration)
    if not isinstance(task, str):
        check_call(task.func, declaration.args, declaration.kwargs, takes_context=task.takes_context)
    if _declared.setdefault(name, declaration) != declaration:
        raise InvalidOption(f"The schedule {name!r} is declared twice, with different contents; give one of them another name.")


def _caller() -> str:
    """Return the module that calls `schedule`."""
    name: str = sys._getframe(2).f_globals.get("__name__", "")
    return name[:200]


def declarations() -> dict[str, Declaration]:
    """Return the declarations of all imported modules, by name."""
    return dict(_declared)


def declared() -> list[str]:
    """Return the names of the schedules that imported modules declare."""
    return sorted(_declared)


# Rules: for declarations, for forms, and for rows that are due


def check(row: Schedule | Declaration) -> None:
    """Reject a definition that cannot create a job; the error names the value, the rule and the fix."""
    check_timing(row)
    for rule in placement_rules(row):
        rule()
    check_arguments(row)


def placement_rules(row: Schedule | Declaration) -> list[Callable[[], object]]:
    """Return the rules for missed times and for the options of the jobs. Each raises for one mistake."""
    given = row.options
    return [
        lambda: _check_missed(row),
        lambda: _check_missed_limit(row),
        lambda: options.check_queue(row.queue) if "queue_name" in given else None,
        lambda: _check_priority(row),
        lambda: options.check_tenant(given.get("tenant")),
        lambda: _check_target(row),
    ]


def _check_missed(row: Schedule | Declaration) -> None:
    if row.missed not in crons.MISSED:
        values = {"name": "missed", "value": safe_repr(row.missed), "choices": ", ".join(crons.MISSED)}
        raise InvalidOption(sentence("%(name)s is %(value)s; it must be one of %(choices)s.", **values))


def _check_missed_limit(row: Schedule | Declaration) -> None:
    is_number = isinstance(row.missed_limit, int) and not isinstance(row.missed_limit, bool)
    if not is_number or not 1 <= row.missed_limit <= crons.MAX_MISSED:
        values = {"name": "missed_limit", "value": safe_repr(row.missed_limit), "least": "1", "most": str(crons.MAX_MISSED)}
        raise InvalidOption(sentence("%(name)s is %(value)s; it must be a whole number from %(least)s to %(most)s.", **values))


def _check_priority(row: Schedule | Declaration) -> None:
    if row.priority is not None:
        options.check_priority(row.priority)


def _check_target(row: Schedule | Declaration) -> None:
    if not isinstance(row.target, str):
        raise InvalidOption(f"target is {safe_repr(row.target)}; a schedule's target must be text.")
    options.check_target(row.options.get("target"))


def check_timing(row: Schedule | Declaration) -> None:
    """Reject a timing that is never due."""
    if row.interval_seconds is not None:
        crons.check_interval(row.interval_seconds)
    if not isinstance(row.cron, str):
        raise InvalidOption(f"cron is {safe_repr(row.cron)}; it must be text. {crons.EXAMPLE}")
    row.timing.check(clock.now())


def check_arguments(row: Schedule | Declaration, entry: registry.RegisteredTask | None = None) -> None:
    """Reject arguments that are no list or object, that JSON cannot store, or that do not fit the task, if it is given."""
    if not isinstance(row.args, list):
        kind = type(row.args).__qualname__
        raise InvalidArgumentType(sentence("args is a %(kind)s; it must be a list, such as [7].", kind=kind))
    if not isinstance(row.kwargs, dict):
        kind = type(row.kwargs).__qualname__
        raise InvalidArgumentType(sentence('kwargs is a %(kind)s; it must be an object, such as {"customer_id": 7}.', kind=kind))
    payload.dumps_arguments(row.args, row.kwargs)
    if entry is not None:
        check_call(entry.func, row.args, row.kwargs, takes_context=entry.takes_context)


def check_call(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], *, takes_context: bool) -> None:
    """Reject arguments that do not fit the parameters of a task; the error names no value."""
    try:
        signature = inspect.signature(func)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*([None] if takes_context else []), *args, **kwargs)
    except TypeError as error:
        parameters = [*signature.parameters.values()][bool(takes_context) :]
        wrong = "; ".join(_misfits(parameters, len(args), {*kwargs})) or str(error)
        takes = ", ".join(one.name for one in parameters) or "none"
        text = sentence("The arguments do not fit the task: %(error)s. It takes: %(names)s.", error=wrong, names=takes[:300])
        raise InvalidArgumentValue(text) from None


def _misfits(parameters: Sequence[inspect.Parameter], number: int, names: set[str]) -> list[str]:
    """Return everything that is wrong with a number of positional arguments and the names of the keyword arguments."""
    kinds = {one.kind for one in parameters}
    named = [one.name for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    positional = [one.name for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    given, listed = {*positional[:number]}, [one for one in parameters if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    required = [one.name for one in listed if one.default is one.empty]
    wrong = ["too many positional arguments"] if number > len(positional) and inspect.Parameter.VAR_POSITIONAL not in kinds else []
    wrong += [f"multiple values for argument {name!r}" for name in named if name in given & names]
    wrong += [f"missing a required argument: {name!r}" for name in required if name not in given | (names & {*named})]
    unknown = sorted(names - {*named}) if inspect.Parameter.VAR_KEYWORD not in kinds else []
    return wrong + [f"got an unexpected keyword argument {name!r}" for name in unknown]


def check_name(name: Any) -> None:
    """Reject a name that no schedule can have."""
    if not isinstance(name, str) or not name.strip() or len(name) > MAX_NAME or clean(name) != name:
        raise InvalidOption(
            sentence(
                "The name of the schedule is %(name)s; it must be text of 1 to %(most)s characters without NUL, such as 'nightly-report'.",
                name=safe_repr(name),
                most=MAX_NAME,
            )
        )


def _seconds(interval: Any) -> Any:
    """Return the seconds of a timedelta, and any other value unchanged, to be checked."""
    if not isinstance(interval, timedelta):
        return interval
    seconds = interval.total_seconds()
    return int(seconds) if seconds.is_integer() else seconds


def _path(task: Any) -> str:
    path = task if isinstance(task, str) else getattr(task, "module_path", None)
    if not isinstance(path, str) or "." not in path or not all(part.isidentifier() for part in path.split(".")):
        rule = "a task, or its dotted path such as 'shop.tasks.build_report'"
        raise InvalidOption(f"The task of the schedule is {safe_repr(task)}; it must be {rule}.")
    options.check_path(path)
    return path
