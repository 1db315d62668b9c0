"""A duty is a small object that is asked, again and again, to do what is due now, and reports what it did.

It knows no threads and no leadership: whoever calls `run_once` answers for both. A duty that is led by one worker at a time runs
with a fence (see `duties/leadership.py`): each write transaction that it opens with ``Job.objects.database.atomic()`` checks first
that the worker still leads, and raises `LeadershipLost` where it does not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from jobqueue.core import duty_rules

Strategy = Literal["lease", "everyone"]
# The names of the duties that come with the product (`duties/builtin.py`): a project's duty must not take one's place.
RESERVED = duty_rules.BUILTIN


@dataclass(frozen=True, slots=True)
class Report:
    """Tell what one run of a duty did.

    `items` counts what was moved, deleted or made; `set_aside` what could not be, each with its own reason in the log. `again` asks
    for the next run at once, since there is more; `pause_seconds` for the next one then (None: after the duty's interval).
    """

    items: int = 0
    set_aside: int = 0
    again: bool = False
    pause_seconds: float | None = None


class Duty:
    """Do something for all workers; one instance lives as long as one worker leads the duty, so it may remember how far it came."""

    name: str
    interval_seconds: float = 1.0
    strategy: Strategy = "lease"
    rotate_after_seconds: float | None = None
    lets_jobs_in: bool = False  # whether its items are jobs that may be taken now, so that this process's own dispatcher is woken
    exact_now = True  # whether `now` decides what is done; else it is reckoned from an earlier answer, which saves a statement each run
    wake: Callable[[], object] = staticmethod(lambda: None)  # asks for the next run now; who runs it puts in what does
    longest_run_seconds: float | None = 30.0  # of one run; then its connection is cut, and after twice as long it is given up on

    def able(self) -> bool:
        """Return whether this process can do it at all; one that cannot never leads it."""
        return True

    def run_once(self, now: datetime) -> Report:
        """Do what is due at `now`, the database's time, in short transactions; raise whatever keeps it from being done."""
        raise NotImplementedError

    def hear(self) -> None:
        """Take note that there may be new work, before the next run; called from any thread."""

    def end(self) -> list[str]:
        """Bring what is under way to an end, after the last run; name what did not stop."""
        return []

    @property
    def end_seconds(self) -> float:
        """How long its present run and its end may take, once the worker stops."""
        return 0.5

    def hurry(self) -> None:
        """Let the end wait for nothing more; called from another thread."""


class FunctionDuty(Duty):
    """A duty of a project, made by ``@duty`` from a function."""

    longest_run_seconds = None  # nobody but the project knows

    def __init__(
        self, name: str, function: Callable[[], object], interval_seconds: float, strategy: Strategy, rotate_after_seconds: float | None
    ) -> None:
        """Keep what the decorator was told."""
        self.name = name
        self.function = function
        self.interval_seconds = interval_seconds
        self.strategy = strategy
        self.rotate_after_seconds = rotate_after_seconds

    def run_once(self, now: datetime) -> Report:
        """Call the function; what it returns counts as items where it is a whole number, or is a report."""
        done = self.function()
        if isinstance(done, Report):
            return done
        return Report(items=done if isinstance(done, int) and not isinstance(done, bool) else 0)
