"""Name everything that can go wrong, and the exceptions that steer a running task.

``JobQueueError`` is the root of the errors. ``Retry`` and ``Fatal`` are raised by a task, ``Suspended`` by its context, ``Interrupted``
and ``LeaseLost`` reach a running task from outside; these five say what shall happen and are no errors of ours. ``TimeLimitExceeded``
reaches it from outside, too, and is an error like any other.
"""

import math
import threading
from datetime import datetime, timedelta

MAX_DELAY_SECONDS = 366 * 24 * 3600


class JobQueueError(Exception):
    """Be the root of every error that this package raises."""


class InvalidOption(JobQueueError, ValueError):
    """Refuse an option of a task, a job or a backoff that has a wrong value."""


class InvalidArguments(JobQueueError):
    """Refuse arguments or metadata that would not come back from the database as they went in."""


class InvalidArgumentType(InvalidArguments, TypeError):
    """Refuse an argument of a type that JSON does not have."""


class InvalidArgumentValue(InvalidArguments, ValueError):
    """Refuse an argument of a fitting type with a value that cannot be stored."""


class ResultNotStorable(JobQueueError, ValueError, TypeError):
    """Say that a task returned something that cannot be stored as its result."""


class InvalidBackoff(JobQueueError):
    """Say that a backoff policy raised, or returned something that is no delay."""


class TenantContextFailed(JobQueueError):
    """The context of a job's tenant could not be entered or left, or the tenant's schema is gone."""


class TransactionUndone(JobQueueError):
    """A transactional task ended well, but its transaction cannot be committed; its work is undone."""


class JobIsRunning(JobQueueError):
    """A running job cannot be deleted; cancel it first."""


class JobDoesNotExist(JobQueueError):
    """Say that no job has the given id."""


class UnknownTask(JobQueueError):
    """Say that no registered task has the path that a job names."""


class WorkerLost(JobQueueError):
    """Stand in a job's history as the error of a run whose worker died or lost its lease."""


class LeadershipLost(JobQueueError):
    """Say that a duty belongs to another worker by now, or that nobody can tell: nothing more of this run may be written."""


class RunContextFailed(JobQueueError):
    """Say that a context manager of `RUN_CONTEXTS` could not be made or entered, so that the run failed."""


class RunFailed(JobQueueError):
    """Stand for the error of a run whose exception object is gone, in signals and log records."""


class JobCanceled(JobQueueError):
    """Stand in the task result of a canceled job as its error."""


class Interrupted(BaseException):
    """Stop a running task, because somebody asked for a pause or a cancel, or the worker must end.

    It is a BaseException, as KeyboardInterrupt and asyncio.CancelledError are, so that an ``except Exception`` in the task does not
    swallow it. A task that catches it to clean up has to raise it again.
    """


class LeaseLost(Interrupted):
    """Stop a run whose job belongs to another worker by now: whatever it still does may be done twice."""


class TimeLimitExceeded(JobQueueError, TimeoutError):
    """Stop a run that has reached its time limit (``timeout=``): a failure like any other, which ``except TimeoutError`` catches.

    It is raised once. A task that catches it may clean up, for `TIMEOUT_GRACE_SECONDS`; one that then returns has succeeded.
    """

    def __init__(self, message: str = "The time limit was exceeded") -> None:
        """Keep the message; thrown into a thread, it has none of its own."""
        super().__init__(message)


class Retry(Exception):
    """Ask for another attempt; raised by a task.

    ``delay`` is the time to wait in seconds or a timedelta, used as it is, without jitter; None leaves it to the backoff policy. More
    than 366 days are cut to 366 days.
    """

    delay_seconds: float | None

    def __init__(self, message: str = "", *, delay: float | timedelta | None = None) -> None:
        """Keep the message and the delay, refusing one that is no time to wait."""
        super().__init__(message)
        self.delay_seconds = None if delay is None else delay_in_seconds(delay)


class Fatal(Exception):
    """End the job in ERROR with this message, whatever attempts are left; raised by a task."""


class PhasesChanged(JobQueueError, Fatal):
    """Say that a deployment changed the phases of a pipeline so that a job that has begun cannot go on."""


class PhaseUnknown(JobQueueError, LookupError):
    """Say that a pipeline has no phase of this name, or that the phase has not finished."""


class ChildrenRefused(JobQueueError, Fatal):
    """Refuse to wait for jobs that could end only after the one that waits."""


class TransactionLeftOpen(JobQueueError):
    """Say that a phase left a transaction open, so that what it wrote there is gone."""


class NoPhases(JobQueueError, Fatal):
    """Refuse to a task, or outside of its phases, what only a phase can do."""


class InsideTransaction(JobQueueError, Fatal):
    """Refuse to end a phase inside of a transaction: what ends it would roll the transaction back."""


class PhaseResultNotStorable(ResultNotStorable, Fatal):
    """Say that a phase returned something that cannot be stored as its result."""


class Suspended(BaseException):
    """End a phase and the run: the job goes on at its next phase later. Raised by ``context.sleep`` and ``context.wait_for``.

    It is a BaseException, so that an ``except Exception`` in the task does not swallow it. `until` (a datetime) is stronger than
    `seconds`; `children` are the ids of jobs to wait for, None where it sleeps.
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
        """Keep what the phase came to, and what the job waits for."""
        super().__init__(message)
        self.value, self.seconds, self.until = value, seconds, until
        self.children = children


def delay_in_seconds(delay: object, name: str = "delay") -> float:
    """Return a number of seconds or a timedelta as seconds, at most 366 days; refuse everything else, naming it ``name``."""
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise InvalidOption(f"{name} is a {type(delay).__qualname__}; it must be a number of seconds or a timedelta.")
    if not 0 <= seconds < math.inf:  # NaN compares false, too
        # An int of thousands of digits cannot be printed.
        shown = f"{seconds}" if isinstance(seconds, float) or seconds > -MAX_DELAY_SECONDS else "a huge negative number"
        raise InvalidOption(f"{name} is {shown}; it must be a finite number of seconds, 0 or more.")
    return float(min(seconds, MAX_DELAY_SECONDS))


def is_for_the_process(error: BaseException) -> bool:
    """Return whether code of the project that raised this is not to be blamed for it: Ctrl-C, which arrives in the main thread.

    Whatever else it raises, SystemExit included, is an error of that code, and ends nothing but what it was called for.
    """
    return isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread()
