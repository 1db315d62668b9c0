"""The exceptions of jobqueue: its errors, and those that control a running task.

``JobQueueError`` is the base class of the errors. A task raises ``Retry`` and ``Fatal``, and its context raises
``Suspended``. The worker raises ``Interrupted`` and ``LeaseLost`` in a running task. These five are requests, not
errors of jobqueue. The worker raises ``TimeLimitExceeded`` in a running task, too, but that is an error like any
other.
"""

import math
import threading
from collections.abc import Sequence
from datetime import datetime, timedelta

MAX_DELAY_SECONDS = 366 * 24 * 3600


class JobQueueError(Exception):
    """The base class of all errors that this package raises."""


class InvalidOption(JobQueueError, ValueError):
    """The error for a wrong value of an option of a task, a job or a back-off."""


class InvalidArguments(JobQueueError):
    """The error for arguments or metadata that the database would not return unchanged."""


class InvalidArgumentType(InvalidArguments, TypeError):
    """The error for an argument of a type that JSON does not have."""


class InvalidArgumentValue(InvalidArguments, ValueError):
    """The error for an argument of a valid type with a value that cannot be stored."""


class ResultNotStorable(JobQueueError, ValueError, TypeError):
    """The error for a return value of a task that cannot be stored as its result."""


class InvalidBackoff(JobQueueError):
    """The error for a back-off policy that raised, or returned a value that is not a delay."""


class TenantContextFailed(JobQueueError):
    """The error for a tenant whose context could not be entered or left, or whose schema is gone."""


class TransactionUndone(JobQueueError):
    """The error for a transactional task that succeeded, but whose transaction cannot be committed; its work is rolled back."""


class InvalidSearch(JobQueueError, ValueError):
    """The error for a text that is not a valid search for jobs; see ``core/search.py``."""


class JobIsRunning(JobQueueError):
    """The error for an attempt to delete a running job; cancel it first."""


class JobDoesNotExist(JobQueueError):
    """The error for an id that no job has."""


class CannotRunAgain(JobQueueError):
    """The error for a job that cannot run again, or not with these arguments; `problems` lists all reasons."""

    def __init__(self, problems: Sequence[str]) -> None:
        """Store the reasons."""
        super().__init__(" ".join(problems))
        self.problems = [*problems]


class WorkerDoesNotExist(JobQueueError):
    """The error for a name that no worker has, or more than one."""


class UnknownTask(JobQueueError):
    """The error for a job whose task is not registered."""


class WorkerLost(JobQueueError):
    """The error of a run whose worker died or lost its lease, as the history of the job records it."""


class LeadershipLost(JobQueueError):
    """The error for a duty that another worker leads now, or whose leader is unknown: this run must not write any more."""


class RunContextFailed(JobQueueError):
    """The error for a context manager of `RUN_CONTEXTS` that could not be created or entered, so that the run failed."""


class RunFailed(JobQueueError):
    """The error of a run whose exception object is gone, as signals and log records report it."""


class JobCanceled(JobQueueError):
    """The error of a canceled job in its task result."""


class Interrupted(BaseException):
    """The request to stop a running task, because its job is paused or canceled, or because the worker stops.

    It is a BaseException, as KeyboardInterrupt and asyncio.CancelledError are, so that an ``except Exception`` in
    the task does not catch it. A task that catches it to clean up must raise it again.
    """


class LeaseLost(Interrupted):
    """The request to stop a run whose lease is lost: another worker can run the job already, so its effects can happen twice."""


class TimeLimitExceeded(JobQueueError, TimeoutError):
    """The error of a run that has reached its time limit (``timeout=``): a failure, which ``except TimeoutError`` catches.

    It is raised once. A task that catches it has `TIMEOUT_GRACE_SECONDS` to clean up. If the task then returns, it
    has succeeded.
    """

    def __init__(self, message: str = "The time limit was exceeded") -> None:
        """Store the message. An exception that is raised in a thread has the default message."""
        super().__init__(message)


class Retry(Exception):
    """The request of a task for another attempt.

    ``delay`` is the time to wait, in seconds or as a timedelta; it is used without jitter. If it is None, the
    back-off policy decides. A delay of more than 366 days becomes 366 days.
    """

    delay_seconds: float | None

    def __init__(self, message: str = "", *, delay: float | timedelta | None = None) -> None:
        """Store the message and the delay; raise `InvalidOption` for a wrong delay."""
        super().__init__(message)
        self.delay_seconds = None if delay is None else delay_in_seconds(delay)


class Fatal(Exception):
    """The request of a task to end its job in ERROR with this message, whatever attempts are left."""


class PhasesChanged(JobQueueError, Fatal):
    """The error for a pipeline whose phases a deployment changed so that a job that has begun cannot continue."""


class PhaseUnknown(JobQueueError, LookupError):
    """The error for a phase that does not exist in the pipeline, or has not finished."""


class ChildrenRefused(JobQueueError, Fatal):
    """The error for a wait for jobs that can end only after the waiting job."""


class TransactionLeftOpen(JobQueueError):
    """The error for a phase that left a transaction open, so that its writes in that transaction are rolled back."""


class NoPhases(JobQueueError, Fatal):
    """The error for an operation that only a phase can use, in a task without phases or outside of a phase."""


class InsideTransaction(JobQueueError, Fatal):
    """The error for the end of a phase inside of a transaction: the exception that ends it would roll the transaction back."""


class PhaseResultNotStorable(ResultNotStorable, Fatal):
    """The error for a return value of a phase that cannot be stored as its result."""


class Suspended(BaseException):
    """The request to end a phase and its run: the job continues later, at its next phase.

    ``context.sleep`` and ``context.wait_for`` raise it. It is a BaseException, so that an ``except Exception`` in
    the task does not catch it. `until` (a datetime) takes precedence over `seconds`. `children` are the ids of the
    jobs to wait for; None for a sleep.
    """

    def __init__(
        self,
        message: str,
        *,
        value: object = None,
        seconds: float = 0.0,
        until: datetime | None = None,
        children: tuple[int, ...] | None = None,
    ) -> None:
        """Store the result of the phase, and what the job waits for."""
        super().__init__(message)
        self.value, self.seconds, self.until = value, seconds, until
        self.children = children


def delay_in_seconds(delay: object, name: str = "delay") -> float:
    """Return a number of seconds or a timedelta in seconds, at most 366 days; reject any other value by the name ``name``."""
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise InvalidOption(f"{name} is a {type(delay).__qualname__}; it must be a number of seconds or a timedelta.")
    if not 0 <= seconds < math.inf:  # NaN compares false, too
        # An int of thousands of digits cannot be printed.
        shown = f"{seconds}" if isinstance(seconds, float) or seconds > -MAX_DELAY_SECONDS else "a huge negative number"
        raise InvalidOption(f"{name} is {shown}; it must be a finite number of seconds, 0 or more.")
    return float(min(seconds, MAX_DELAY_SECONDS))


def is_for_the_process(error: BaseException) -> bool:
    """Return whether an exception is Ctrl-C in the main thread, which is not an error of the code that raised it.

    Any other exception, including SystemExit, is an error of that code and ends only that call.
    """
    return isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread()
