"""Back-off: the delay of a job before its next attempt.

A policy is any callable ``(exception, failures) -> seconds``. ``failures`` counts the failed attempts, including the
last one. The three policies of this module are frozen and hashable, because they are fields of frozen tasks. They are
exact up to their cap and safe for any number of failures.

Jitter prevents jobs that failed together from running again together. It only lengthens the delay, by up to 40 %,
evenly distributed. If the cap leaves no room for that, the same range is moved down to end at the cap. So a delay d
becomes one in [d, 1.4 d], and at the cap one in [cap / 1.4, cap]. The spread is at least 28 % of the delay, and no
delay is below 71 % of the policy's.
"""

import math
import random as random_module
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from jobqueue.core.texts import exception_summary, safe_repr
from jobqueue.exceptions import Interrupted, InvalidBackoff, InvalidOption, delay_in_seconds

DEFAULT_CAP_SECONDS = 300
JITTER = 0.4


class Backoff(Protocol):
    """A callable that returns the delay before the next attempt, in seconds or as a timedelta."""

    def __call__(self, exception: BaseException | None, failures: int, /) -> float | timedelta:
        """Return the delay after the given number of failed attempts, the last of which raised ``exception``."""


@dataclass(frozen=True)
class Fixed:
    """A policy with the same delay after every failure; made by ``fixed``."""

    seconds: float
    jitter: bool

    def __call__(self, exception: BaseException | None, failures: int, /) -> float:
        """Return the delay in seconds."""
        return self.delay(failures)

    def delay(self, failures: int, random: Callable[[], float] = random_module.random) -> float:
        """Return the delay in seconds, drawn with ``random``, a callable that returns numbers from 0 to 1."""
        return _spread(self.seconds, math.inf, random) if self.jitter else self.seconds


@dataclass(frozen=True)
class Linear:
    """A policy whose delay grows by ``base`` seconds with every failure, up to ``cap``; made by ``linear``."""

    base: float
    cap: float
    jitter: bool

    def __call__(self, exception: BaseException | None, failures: int, /) -> float:
        """Return the delay in seconds."""
        return self.delay(failures)

    def delay(self, failures: int, random: Callable[[], float] = random_module.random) -> float:
        """Return the delay in seconds, drawn with ``random``, a callable that returns numbers from 0 to 1."""
        exact = min(self.base * _countable(failures), self.cap)
        return _spread(exact, self.cap, random) if self.jitter else exact


@dataclass(frozen=True)
class Exponential:
    """A policy whose delay grows by ``factor`` with every failure, up to ``cap`` seconds; made by ``exponential``."""

    base: float
    factor: float
    cap: float
    jitter: bool

    def __call__(self, exception: BaseException | None, failures: int, /) -> float:
        """Return the delay in seconds."""
        return self.delay(failures)

    def delay(self, failures: int, random: Callable[[], float] = random_module.random) -> float:
        """Return the delay in seconds, drawn with ``random``, a callable that returns numbers from 0 to 1."""
        exact = self._exact(_countable(failures) - 1)
        return _spread(exact, self.cap, random) if self.jitter else exact

    def _exact(self, steps: int) -> float:
        """Return ``base * factor ** steps``, at most ``cap``."""
        try:
            return min(self.base * self.factor**steps, self.cap)
        except OverflowError:
            return self.cap if self.base else 0.0


def fixed(seconds: float | timedelta, *, jitter: bool = True) -> Fixed:
    """Return a policy that waits for the same time after every failure."""
    return Fixed(delay_in_seconds(seconds, "fixed(seconds)"), _flag(jitter, "fixed"))


def linear(base: float | timedelta, *, cap: float | timedelta = DEFAULT_CAP_SECONDS, jitter: bool = True) -> Linear:
    """Return a policy that waits base, 2 base, 3 base, … seconds, at most ``cap``."""
    return Linear(*_base_and_cap(base, cap, "linear"), _flag(jitter, "linear"))


def exponential(
    base: float | timedelta = 2, *, factor: float = 2, cap: float | timedelta = DEFAULT_CAP_SECONDS, jitter: bool = True
) -> Exponential:
    """Return a policy that waits base, base factor, base factor², … seconds, at most ``cap``."""
    base_seconds, cap_seconds = _base_and_cap(base, cap, "exponential")
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 1 <= factor <= 1000:
        raise InvalidOption(f"exponential(factor) is {safe_repr(factor)}; it must be a number from 1 to 1000.")
    return Exponential(base_seconds, float(factor), cap_seconds, _flag(jitter, "exponential"))


def delay_seconds(policy: Backoff, exception: BaseException | None, failures: int) -> float:
    """Return the delay of a policy, at most 366 days; raise InvalidBackoff if the policy raises or returns no delay."""
    try:
        returned = policy(exception, failures)
    except Interrupted:
        raise
    except BaseException as error:  # also SystemExit, because a callable of the user's project must not end the worker's thread
        raise InvalidBackoff(
            f"The backoff {safe_repr(policy)} raised {exception_summary(error)} after {failures} failed attempts."
        ) from error
    try:
        return delay_in_seconds(returned, "the delay")
    except InvalidOption as error:
        raise InvalidBackoff(
            f"The backoff {safe_repr(policy)} returned {safe_repr(returned)} after {failures} failed attempts: {error} "
            "Return how long to wait, for instance 30 or timedelta(minutes=5)."
        ) from None


def _countable(failures: int) -> int:
    """Return the number as at least 1 and small enough to be multiplied with a float."""
    return max(1, min(failures, 10**15))


def _spread(exact: float, cap: float, random: Callable[[], float]) -> float:
    """Return a delay from the range that the module's docstring defines."""
    high = min(exact * (1 + JITTER), cap)
    low = min(exact, high / (1 + JITTER))
    return min(low + (high - low) * random(), high)


def _base_and_cap(base: float | timedelta, cap: float | timedelta, name: str) -> tuple[float, float]:
    """Return both in seconds; reject a base above the cap."""
    base_seconds, cap_seconds = delay_in_seconds(base, f"{name}(base)"), delay_in_seconds(cap, f"{name}(cap)")
    if base_seconds > cap_seconds:
        raise InvalidOption(
            f"{name}(base) is {base_seconds} and cap is {cap_seconds}; cap limits every delay, so it must be at least base."
        )
    return base_seconds, cap_seconds


def _flag(jitter: bool, name: str) -> bool:
    """Return the flag; reject a value that is not a bool."""
    if not isinstance(jitter, bool):
        raise InvalidOption(f"{name}(jitter) is {safe_repr(jitter)}; it must be True or False.")
    return jitter


DEFAULT = exponential(base=2, cap=DEFAULT_CAP_SECONDS)
