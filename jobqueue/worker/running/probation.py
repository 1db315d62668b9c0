"""Probation: jobs that were lost with a worker before begin a few at a time, so that a job that kills processes can be identified.

Such a job is a suspect. If all suspects of a dead process began again at once, the job that kills would take the innocent jobs with it
each time, until all have reached `MAX_CRASHES`. Therefore:

- Suspects begin in groups of 1, 2, 4, 8 and so on. The next group begins when each run of the previous group has lasted 1 s or has ended.
- The start of a suspect is written before it begins. If its worker dies before that, the suspect had not begun and is not blamed.
- A suspect whose next crash would be its last begins last, and only beside suspects that have run for a minute. While it runs, no
  other suspect begins. So a job that is known to kill takes no innocent job with it to ERROR.
- A suspect that would have to wait for a long run is handed back at once, so that it occupies no slot.

This module reads no clock, does not wait, and does not use the database. The dispatcher calls it. Jobs that never crashed are not
handled here.
"""

from __future__ import annotations

from collections.abc import Sequence

from jobqueue.worker.running.run import Run, Runs

WATCH_SECONDS = 1.0
ALONE_SECONDS = 60.0
PUT_OFF_SECONDS = 5.0
PUT_OFF = "Postponed: jobs that have crashed before do not all run at once."


class Probation:
    """The suspects of one lane, and the decision which of them begin now; times are monotonic."""

    def __init__(self, runs: Runs, max_crashes: int, begun: list[Run]) -> None:
        """Begin with no suspects; a run that is no longer in the register `runs` has ended.

        The lanes of a process share `begun`: each lane has its own groups, but only one suspect of the process may run on its last chance.
        """
        self._runs = runs
        self._last_chance = max_crashes - 1
        self._waiting: list[Run] = []
        self._group: list[Run] = []
        self._begun = begun
        self._size = 1
        self._asked_at = 0.0

    def __len__(self) -> int:
        """Return the number of suspects that wait."""
        return len(self._waiting)

    def add(self, suspects: Sequence[Run]) -> None:
        """Add claimed suspects, in order; the fewer crashes a job has, the sooner it begins."""
        self._waiting = sorted([*self._waiting, *suspects], key=lambda run: run.job.crashes)

    def next_group(self, free: int, now: float) -> list[Run]:
        """Return the suspects that may begin in up to `free` slots; the caller passes those that do begin to `begin`."""
        if now - self._asked_at > WATCH_SECONDS:  # no suspect waited for a while: begin with small groups again
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
        """Record that these runs, whose start is written, begin; the remaining suspects keep waiting."""
        if not group:
            return
        self._waiting = [run for run in self._waiting if run not in group]
        self._group = [*group]
        self._begun += group
        if not self._is_last(group[0]):
            self._size = 2 * len(group)

    def remove(self, run: Run) -> None:
        """Remove a suspect that cannot begin."""
        self._take([run])

    def take_last_chance(self, now: float) -> list[Run]:
        """Remove and return the suspects that wait for a run which is not about to end."""
        long = {run: age for run, age in self._ages(now).items() if age >= WATCH_SECONDS}
        if any(map(self._is_last, long)):
            return self._take(self._waiting)
        if any(age < ALONE_SECONDS for age in long.values()):
            return self._take([run for run in self._waiting if self._is_last(run)])
        return []

    def take_waiting(self, claimed_before: float) -> list[Run]:
        """Remove and return the suspects that were claimed before a time and have not begun."""
        return self._take([run for run in self._waiting if run.claimed_at < claimed_before])

    def _take(self, runs: Sequence[Run]) -> list[Run]:
        taken = set(runs)
        self._waiting = [run for run in self._waiting if run not in taken]
        return [*runs]

    def _ages(self, now: float) -> dict[Run, float]:
        """Return how long each suspect of the process that has not ended has run: 0 if no thread has taken it yet."""
        self._begun[:] = [run for run in self._begun if self._runs.get(run.lease) is run]
        return {run: now - (run.began or now) for run in self._begun}

    def _is_last(self, run: Run) -> bool:
        return run.job.crashes >= self._last_chance
