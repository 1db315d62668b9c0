"""Probation: jobs that were lost with a worker before begin a few at a time, so that one of them that kills processes is found out.

Such a job is a suspect. When all suspects of a dead process begin at once again, the one that kills takes the innocent with it each
time, until all have spent their crashes. Therefore:

- Suspects begin in groups of 1, 2, 4, 8 ...; the next group only when every run of the one before has lasted 1 s or is over.
- The start of a suspect is written before it begins. A suspect without one, whose worker dies, had not begun and is not blamed.
- A suspect whose next crash would be its last begins last, and only beside suspects that have run for a minute. While it runs, no
  other suspect begins. So one that is known to kill takes no innocent with it to ERROR.
- Whatever waits for a long run is put off at once, so that it occupies no slot.

Nothing here reads a clock, waits, or talks to the database; the dispatcher calls it, and jobs that never crashed do not come here.
"""

from __future__ import annotations

from collections.abc import Sequence

from jobqueue.worker.running.run import Run, Runs

WATCH_SECONDS = 1.0
ALONE_SECONDS = 60.0
PUT_OFF_SECONDS = 5.0
PUT_OFF = "Put off: jobs that were lost with a worker before do not all run at once."


class Probation:
    """Decide which suspects of one lane begin now; times are monotonic."""

    def __init__(self, runs: Runs, max_crashes: int, begun: list[Run]) -> None:
        """Begin with no suspects; a run that has left the register `runs` is over.

        `begun` is shared by the lanes of a process: each has groups of its own, but a last chance is one for all of them.
        """
        self._runs = runs
        self._last_chance = max_crashes - 1
        self._waiting: list[Run] = []
        self._group: list[Run] = []
        self._begun = begun
        self._size = 1
        self._asked_at = 0.0

    def __len__(self) -> int:
        """Return how many wait."""
        return len(self._waiting)

    def add(self, suspects: Sequence[Run]) -> None:
        """Take claimed suspects, in order; the less often a job has crashed, the sooner it begins."""
        self._waiting = sorted([*self._waiting, *suspects], key=lambda run: run.job.crashes)

    def next_group(self, free: int, now: float) -> list[Run]:
        """Return the suspects that may begin in so many free slots; `begin` takes those that do."""
        if now - self._asked_at > WATCH_SECONDS:  # nobody waited for a while: careful again
            self._size = 1
        self._asked_at = now
        ages = self._ages(now)
        watched = any(ages[run] < WATCH_SECONDS for run in self._group if run in ages)
        if free <= 0 or not self._waiting or watched or any(map(self._is_last, ages)):
            return []
        mild = [run for run in self._waiting[: min(self._size, free)] if not self._is_last(run)]
        if mild:
            return mild
        return self._waiting[:1] if all(age >= ALONE_SECONDS for age in ages.values()) else []

    def begin(self, group: Sequence[Run]) -> None:
        """Note that these runs, whose start is written, begin; what does not begin goes on waiting."""
        if not group:
            return
        self._waiting = [run for run in self._waiting if run not in group]
        self._group = [*group]
        self._begun += group
        if not self._is_last(group[0]):
            self._size = 2 * len(group)

    def remove(self, run: Run) -> None:
        """Let go of a suspect that cannot begin."""
        self._take([run])

    def take_last_chance(self, now: float) -> list[Run]:
        """Take out the suspects that wait for a run which is not about to end."""
        long = {run: age for run, age in self._ages(now).items() if age >= WATCH_SECONDS}
        if any(map(self._is_last, long)):
            return self._take(self._waiting)
        if any(age < ALONE_SECONDS for age in long.values()):
            return self._take([run for run in self._waiting if self._is_last(run)])
        return []

    def take_waiting(self, claimed_before: float) -> list[Run]:
        """Take out the suspects that were claimed before a time and have not begun."""
        return self._take([run for run in self._waiting if run.claimed_at < claimed_before])

    def _take(self, runs: Sequence[Run]) -> list[Run]:
        taken = set(runs)
        self._waiting = [run for run in self._waiting if run not in taken]
        return [*runs]

    def _ages(self, now: float) -> dict[Run, float]:
        """Return how long each suspect of the process that is not over has run; one that no thread has taken yet has not."""
        self._begun[:] = [run for run in self._begun if self._runs.get(run.lease) is run]
        return {run: now - (run.began or now) for run in self._begun}

    def _is_last(self, run: Run) -> bool:
        return run.job.crashes >= self._last_chance
