"""`JobTask`, the task object with jobqueue's options, and the decorators that create it on each supported Django."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, overload

from asgiref.sync import iscoroutinefunction

from jobqueue import clock, compat
from jobqueue.core import backoff as backoffs
from jobqueue.core import moments
from jobqueue.core.phases import Phase, declared
from jobqueue.declared import functions, registry
from jobqueue.exceptions import InvalidOption
from jobqueue.tasks import options

PLAIN_OPTIONS = ("priority", "queue_name", "run_after", "backend")
JOB_OPTIONS = (
    "max_attempts",
    "backoff",
    "retry_on",
    "recovery",
    "target",
    "tenant",
    "transactional",
    "unique_key",
    "metadata",
    "phases",
    "webhook_url",
    "timeout",
    "expires",
    "secret",
    "schedulable",
)
# A run reads these from the code, so a job cannot have its own.
DECLARED_ONLY = (
    "backoff",
    "retry_on",
    "transactional",
    "phases",
    "secret",
    "schedulable",
)
# Django 6.0 has no defaults for these fields.
DEFAULTS: dict[str, Any] = {"priority": 0, "queue_name": "default", "backend": "default", "takes_context": False}


@dataclass(frozen=True, kw_only=True)
class JobTask(compat.Task):  # type: ignore[misc]
    """A task with jobqueue's options; frozen, and without slots so that ``super()`` works in it.

    - ``max_attempts`` counts the first attempt.
    - An exception of a class in ``retry_on`` leads to a retry after ``backoff``, a callable of ``(exception,
      failures)`` that returns seconds.
    - ``recovery`` sets what happens to the job when its worker is lost.
    - While an unfinished job has the same ``unique_key``, enqueue returns that job.
    - ``metadata`` is stored with the job for the task to read.
    - Jobs of one ``target`` run one at a time, in order, per ``tenant``. It is text, or a callable of the arguments
      that returns text or None.
    - The writes of a ``transactional`` task to the job database and the end of its job are committed in one
      transaction.
    - ``phases`` are the steps of a pipeline (see ``@pipeline``).
    - Webhooks about the job are sent to ``webhook_url``.
    - A run that takes longer than ``timeout`` (seconds or a timedelta) fails with `TimeLimitExceeded`.
    - A job that has not begun when ``expires`` is over (seconds or a timedelta from the enqueue, or a datetime) is
      canceled.
    - The arguments that ``secret`` names are masked wherever jobs are shown.
    - The admin allows no schedule for a task that is not ``schedulable``.
    """

    max_attempts: int = 1
    backoff: backoffs.Backoff = backoffs.DEFAULT
    retry_on: tuple[type[BaseException], ...] = (Exception,)
    recovery: str | None = None
    target: str | Callable[..., str | None] | None = None
    tenant: str | None = None
    transactional: bool = False
    unique_key: str | Callable[..., str | None] | None = None
    metadata: Mapping[str, Any] | None = field(default=None, hash=False)
    phases: tuple[Phase, ...] = ()
    webhook_url: str | None = None
    timeout: float | timedelta | None = None
    expires: float | timedelta | datetime | None = None
    secret: tuple[str, ...] = ()
    schedulable: bool = True

    def __post_init__(self) -> None:
        """Check the function and the options, have the backend check the rest, and register the task."""
        functions.check_function(self.func)
        for name in ("retry_on", "secret"):
            if isinstance(getattr(self, name), list):
                object.__setattr__(self, name, tuple(getattr(self, name)))
        for name in ("priority", "backend", "takes_context", *JOB_OPTIONS):
            getattr(options, f"check_{name}")(getattr(self, name))
        if self.transactional and iscoroutinefunction(self.func):
            raise InvalidOption(
                "transactional=True is for plain functions: a coroutine has no transaction of its own. Leave it out, or "
                "write the task with def."
            )
        if self.phases:
            object.__setattr__(self, "phases", declared(self.phases))
            check_pipeline(self)
        options.check_queue(self.queue_name)
        options.check_path(self.module_path)
        super().__post_init__()
        registry.register(self)

    def using(self, **changes: Any) -> JobTask:
        """Return a copy with other options; None means "unchanged". `run_after` can be a timedelta, counted from the enqueue."""
        options.check_names(changes, (*PLAIN_OPTIONS, *JOB_OPTIONS))
        given = {name: value for name, value in changes.items() if value is not None}
        for name in DECLARED_ONLY:
            if name in given:
                raise InvalidOption(f"{name} is read from the declaration of the task at each run: put it on @task({name}=...).")
        run_after = given.get("run_after")
        moments.check_run_after(run_after)
        if isinstance(run_after, timedelta) and not self._keeps_deltas(str(given.get("backend", self.backend))):
            given["run_after"] = clock.as_project(clock.now() + run_after)
        return dataclasses.replace(self, **given)

    def _keeps_deltas(self, alias: str) -> bool:
        return bool(getattr(compat.task_backends()[alias], "keeps_deltas", False))


def check_pipeline(task: Any) -> None:
    """Reject options that a task with phases cannot have."""
    if not task.takes_context:
        raise InvalidOption("A task with phases takes the context as its first argument: declare it with @pipeline(phases=[...]).")
    if task.transactional:
        why = "each phase is stored in a transaction of its own, so the whole run cannot be one transaction"
        raise InvalidOption(f"transactional=True is not allowed for a pipeline: {why}. Leave it out.")
    kinds = {"async def" if iscoroutinefunction(func) else "def" for func in (task.func, *(phase.func for phase in task.phases))}
    if len(kinds) > 1:
        name = "async def" if iscoroutinefunction(task.func) else "def"
        phase_name = next(phase.name for phase in task.phases if phase.is_async != iscoroutinefunction(task.func))
        rule = "all must be of the same kind. Write all of them with def, or all with async def"
        raise InvalidOption(f"The pipeline's function is {name!r} and its phase {phase_name!r} is not; {rule}.")


def detached(task: Any, **changes: Any) -> Any:
    """Return a copy of a task that no backend has checked: for results whose queue or function may be gone."""
    copy = object.__new__(type(task))
    for item in dataclasses.fields(task):
        object.__setattr__(copy, item.name, changes.get(item.name, getattr(task, item.name)))
    return copy


def placeholder(path: str, **values: Any) -> Any:
    """Return a substitute for a task whose function is gone; calling it raises `UnknownTask`."""
    module, _, name = path.rpartition(".")

    def gone(*args: Any, **kwargs: Any) -> None:
        from jobqueue.exceptions import UnknownTask

        raise UnknownTask(f"No registered task has the path {path!r}.")

    gone.placeholder = True  # type: ignore[attr-defined]
    gone.__module__, gone.__qualname__, gone.__name__ = module or "unknown", name, name
    copy = object.__new__(JobTask)
    for item in dataclasses.fields(JobTask):
        default = None if item.default is dataclasses.MISSING else item.default
        object.__setattr__(copy, item.name, {"func": gone, **DEFAULTS, **values}.get(item.name, default))
    return copy


@overload
def task(function: Callable[..., Any], /) -> JobTask: ...
@overload
def task(
    *,
    priority: int = 0,
    queue_name: str = "default",
    backend: str = "default",
    takes_context: bool = False,
    max_attempts: int = 1,
    backoff: backoffs.Backoff = backoffs.DEFAULT,
    retry_on: tuple[type[BaseException], ...] = (Exception,),
    recovery: str | None = None,
    target: str | Callable[..., str | None] | None = None,
    tenant: str | None = None,
    transactional: bool = False,
    unique_key: str | Callable[..., str | None] | None = None,
    metadata: Mapping[str, Any] | None = None,
    webhook_url: str | None = None,
    timeout: float | timedelta | None = None,
    expires: float | timedelta | datetime | None = None,
    secret: Sequence[str] = (),
    schedulable: bool = True,
) -> Callable[[Callable[..., Any]], JobTask]: ...
def task(function: Callable[..., Any] | None = None, /, **given: Any) -> JobTask | Callable[[Callable[..., Any]], JobTask]:
    """Declare a module-level function, plain or ``async``, as a task: the decorator of django.tasks with jobqueue's options."""
    if function is not None and not callable(function):
        raise InvalidOption(f"@task got {function!r}; options are given by name, such as @task(priority=5).")
    options.check_names(given, ("priority", "queue_name", "backend", "takes_context", *JOB_OPTIONS))

    def declare(func: Callable[..., Any]) -> JobTask:
        return JobTask(func=func, run_after=None, **{**DEFAULTS, **given})

    return declare(function) if function is not None else declare


def pipeline(*, phases: Sequence[Callable[..., Any] | Phase], **given: Any) -> Callable[[Callable[..., Any]], JobTask]:
    """Declare a module-level function as a pipeline: a task of named phases that run one after the other, each until it has finished once.

    Each phase is called with the context and the job's arguments. The function itself runs last. Its result is the
    job's result; if it is None, the job's result is that of the last phase. The function takes each option of
    ``@task`` but ``transactional`` and ``takes_context``, which is always True.
    """
    known = ("priority", "queue_name", "backend", *(name for name in JOB_OPTIONS if name != "transactional"))
    if "transactional" not in given:  # `check_pipeline` reports the reason otherwise
        options.check_names(given, known)
    steps = declared(phases)

    def declare(func: Callable[..., Any]) -> JobTask:
        if not callable(func) or hasattr(func, "module_path"):
            raise InvalidOption(f"@pipeline got {func!r}; it must be a module-level function. Remove its other decorator.")
        return JobTask(func=func, run_after=None, **{**DEFAULTS, **given, "takes_context": True, "phases": steps})

    return declare
