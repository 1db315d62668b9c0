"""The phases of a pipeline as data: their names, the progress over all of them, and what a deployment can change. No database is used.

The rule for deployments: a phase that has finished does not run again, and all other phases run as the code
declares them now.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from asgiref.sync import iscoroutinefunction

from jobqueue.core.texts import safe_repr
from jobqueue.exceptions import InvalidOption, PhasesChanged

MAX_NAME = 200
MAX_PHASES = 1000
SUCCESS = "SUCCESS"


@dataclass(frozen=True, slots=True)
class Phase:
    """A step of a pipeline, and the function that does it."""

    name: str
    func: Callable[..., Any]

    @property
    def is_async(self) -> bool:
        """Whether the phase is a coroutine function."""
        return iscoroutinefunction(self.func)


@dataclass(slots=True)
class PhaseState:
    """The state of one phase of a job; `result` and `checkpoint` are JSON text, or None if there is none."""

    name: str
    status: str = "PENDING"
    attempts: int = 0
    result: str | None = None
    checkpoint: str | None = None

    @property
    def finished(self) -> bool:
        """Whether the phase has finished and will not run again."""
        return self.status == SUCCESS


def phase(name: str) -> Callable[[Callable[..., Any]], Phase]:
    """Give a phase another name than that of its function: ``phase("download")(fetch_video)``, or as a decorator of the function."""
    _check_name(name)

    def named(func: Callable[..., Any]) -> Phase:
        _check_callable(func)
        return Phase(name, func)

    return named


def declared(phases: Any) -> tuple[Phase, ...]:
    """Return the phases of a declaration; raise `InvalidOption` with the value, the rule and the fix."""
    if not isinstance(phases, list | tuple):
        raise InvalidOption(f"phases is a {type(phases).__qualname__}; it must be a list of functions, in the order in which they run.")
    if not 0 < len(phases) <= MAX_PHASES:
        rule = f"a pipeline has from 1 to {MAX_PHASES} phases. A task without phases is declared with @task"
        raise InvalidOption(f"phases lists {len(phases)} functions; {rule}.")
    phases_declared = tuple(_declared(phase) for phase in phases)
    names = [phase.name for phase in phases_declared]
    if twice := next((name for name in names if names.count(name) > 1), None):
        rule = "the names of a pipeline's phases must differ"
        raise InvalidOption(
            f'phases names {twice!r} more than once; {rule}. Give one of them another name: phase("another name")(function).'
        )
    return phases_declared


def _declared(phase: Any) -> Phase:
    if isinstance(phase, Phase):
        return phase
    _check_callable(phase)
    name = getattr(phase, "__name__", None)
    if not isinstance(name, str) or not name.isidentifier():
        raise InvalidOption(f'phases lists {safe_repr(phase)}, which has no name. Give it one: phase("name")(function).')
    _check_name(name)
    return Phase(name, phase)


def _check_callable(phase: Any) -> None:
    if hasattr(phase, "module_path"):
        raise InvalidOption(f"phases lists the task {phase.module_path!r}; a phase must be a plain function. Remove its @task.")
    if not callable(phase):
        hint = "pass the function itself, not its result or its name"
        raise InvalidOption(f"phases lists {safe_repr(phase)}; each phase must be a callable of (context, *args, **kwargs): {hint}.")


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not name.strip() or len(name) > MAX_NAME:
        rule = f"it must be text of 1 to {MAX_NAME} characters"
        raise InvalidOption(f'The name of a phase is {safe_repr(name)}; {rule}. Give it one: phase("name")(function).')
    if wrong := next((character for character in name if unicodedata.category(character) in ("Cc", "Cs")), None):
        raise InvalidOption(f"The name of a phase is {safe_repr(name)}, with {wrong!r} in it; it must have no control characters.")


def overall(index: int, percent: float, number: int) -> int:
    """Return the progress of a pipeline that is in its phase `index` (from 0), in percent, rounded half up."""
    return math.floor((100 * index + percent) / number + 0.5)


def reconciled(names: Sequence[str], rows: Iterable[PhaseState]) -> list[PhaseState]:
    """Return the state of each declared phase, in the order of the code; raise `PhasesChanged` if a job cannot continue.

    It can continue if the phases that have finished are the first ones of the code. If the code no longer has a
    finished phase, the phase counts as removed, and its result can still be read. If the code also has a new
    phase, the job cannot continue, because the new phase may be the finished one under another name.
    """
    known = {row.name: row for row in rows}
    done = [name for name, row in known.items() if row.finished]
    removed = [name for name in done if name not in names]
    new = [name for name in names if name not in known]
    if removed and new:
        raise PhasesChanged(
            f"The code no longer has {_listed(removed)}, which this job has finished, and has {_listed(new)}, which is new to it. If a"
            f' phase was renamed, give it its old name, phase("{removed[0]}")(function), and resume the job; otherwise cancel it '
            f"and enqueue it again."
        )
    states = [known.get(name) or PhaseState(name) for name in names]
    count = sum(state.finished for state in states)
    late = [state.name for state in states[:count] if not state.finished]
    if late:
        after = [state.name for state in states[count:] if state.finished]
        raise PhasesChanged(
            f"The code now has {_listed(late)} before {_listed(after)}, which this job has finished already. Declare"
            f" {_listed(late)} after the finished phases ({', '.join(done)}), and resume the job; otherwise cancel it and enqueue it again."
        )
    return states


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:5])) + (", …" if len(names) > 5 else "")
    return f"phase{'s' if len(names) > 1 else ''} {shown}"
