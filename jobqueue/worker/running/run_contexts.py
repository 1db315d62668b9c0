"""The project's context managers around each run (`RUN_CONTEXTS`): scopes of error trackers, spans, variables of logging.

They are entered in order, in the thread of the task or in its coroutine. They are left in reverse order, with the exception of the task.
If one cannot be created or entered, the run fails. If one cannot be left, that is only logged: the work is done.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

from jobqueue import conf
from jobqueue.core import repeats, texts
from jobqueue.db import Claimed
from jobqueue.exceptions import Interrupted, RunContextFailed, TimeLimitExceeded


@dataclass(frozen=True, slots=True)
class RunInfo:
    """The facts about a run that its run contexts receive."""

    id: int
    task: str
    queue: str
    tenant: str
    target: str
    attempt: int
    max_attempts: int
    metadata: dict[str, Any]


def contexts_of(job: Claimed) -> RunContexts | None:
    """Return the context managers of a run, not entered yet; return None if the project has none."""
    return RunContexts(job) if conf.current().run_contexts else None


class RunContexts:
    """The context managers of one run that were entered and not left yet."""

    def __init__(self, job: Claimed) -> None:
        """Begin with no entered context managers."""
        self._job = job
        self._entered: list[tuple[Any, bool]] = []

    def enter(self) -> None:
        """Enter all context managers of a plain function's run; raise `RunContextFailed` for the first that fails."""
        for factory in conf.run_contexts():
            manager = self._create(factory)
            if not hasattr(type(manager), "__enter__"):
                raise RunContextFailed(
                    f"{_name(factory)} (RUN_CONTEXTS) did not return a context manager for a plain function: {_kind(manager)}"
                )
            try:
                manager.__enter__()
            except (Interrupted, TimeLimitExceeded):  # thrown into this thread
                raise
            except Exception as error:
                raise _not_entered(factory, error) from error
            self._entered.append((manager, False))

    async def aenter(self) -> None:
        """Enter all context managers of a coroutine's run; they may be asynchronous."""
        for factory in conf.run_contexts():
            manager = self._create(factory)
            is_async = hasattr(type(manager), "__aenter__")
            if not is_async and not hasattr(type(manager), "__enter__"):
                raise RunContextFailed(f"{_name(factory)} (RUN_CONTEXTS) did not return a context manager: {_kind(manager)}")
            try:
                if is_async:
                    await manager.__aenter__()
                else:
                    manager.__enter__()
            except (Interrupted, TimeLimitExceeded):  # thrown into this thread
                raise
            except Exception as error:
                raise _not_entered(factory, error) from error
            self._entered.append((manager, is_async))

    def _create(self, factory: Any) -> Any:
        job = self._job
        metadata = json.loads(job.metadata)
        info = RunInfo(job.id, job.task, job.queue, job.tenant, job.target, job.attempt, job.max_attempts, metadata)
        try:
            return factory(info)
        except Exception as error:
            raise _not_entered(factory, error) from error

    def exit(self, error: BaseException | None) -> None:
        """Leave the entered context managers with what the task raised; raise nothing, unless an interrupt arrives."""
        while self._entered:
            manager, _ = self._entered.pop()
            try:
                manager.__exit__(*_details(error))
            except BaseException as wrong:  # noqa: BLE001 - code of the project may raise anything; the remaining ones are left
                self._log(manager, error, wrong)

    async def aleave(self, error: BaseException | None) -> None:
        """Leave the entered context managers of a coroutine's run."""
        while self._entered:
            manager, is_async = self._entered.pop()
            try:
                result = (manager.__aexit__ if is_async else manager.__exit__)(*_details(error))
                if isinstance(result, Awaitable):
                    await result
            except BaseException as wrong:  # noqa: BLE001 - as above
                self._log(manager, error, wrong)

    def _log(self, manager: Any, error: BaseException | None, wrong: BaseException) -> None:
        if wrong is not error:  # a context manager may raise the exception that it was given
            text = "Job %s (%s): %s of RUN_CONTEXTS could not be exited: %s"
            name = type(manager).__qualname__
            repeats.log(logging.ERROR, text, self._job.id, self._job.task, name, texts.exception_summary(wrong), exc_info=wrong, kind=name)


def _details(error: BaseException | None) -> tuple[Any, Any, Any]:
    return (None, None, None) if error is None else (type(error), error, error.__traceback__)


def _not_entered(factory: Any, error: Exception) -> RunContextFailed:
    return RunContextFailed(f"{_name(factory)} (RUN_CONTEXTS) could not be entered: {texts.exception_summary(error)}")


def _name(factory: Any) -> str:
    return f"{getattr(factory, '__module__', '')}.{getattr(factory, '__qualname__', type(factory).__qualname__)}"


def _kind(manager: Any) -> str:
    return f"its value is of type {type(manager).__qualname__}"
