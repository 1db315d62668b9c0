"""Probation: jobs that were lost with a worker before begin one at a time, so that a job that kills processes can be identified.

Such a job is a suspect. If all suspects of a dead process began again at once, the job that kills would crash the innocent jobs each
time, until all have reached `MAX_CRASHES`. Therefore:

- One suspect of a process begins at a time. The next begins when this one has lasted 1 s or has ended.
- The start of a suspect is written before it begins. If its worker dies before that, the suspect had not begun and is not blamed.
- A suspect whose next crash would be its last begins last, and only beside suspects that have run for a minute. While it runs, no
  other suspect begins. So no innocent job ends in ERROR because of a job that is known to kill.
- A suspect that would have to wait for a long run is handed back at once, so that it occupies no slot.

This module reads no clock, does not wait, and does not use the database. The dispatcher calls it. Jobs that never crashed are not
handled here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jobqueue.worker.running.run import Run, Runs

WATCH_SECONDS = 1.0
ALONE_SECONDS = 60.0
PUT_OFF_SECONDS = 5.0
PUT_OFF = "Postponed: jobs that have crashed before do not all run at once."


class Probation:
    """The suspects of one process, and the decision which of them begins now; times are monotonic."""

    def __init__(self, runs: Runs, max_crashes: int) -> None:
        """Begin with no suspects; a run that is no longer in the register `runs` has ended."""
        self._runs = runs
        self._last_chance = max_crashes - 1
        self._begun: list[Run] = []
        self.waiting: list[Run] = []

    def add(self, suspects: Iterable[Run]) -> None:
        """Add claimed suspects, in order; the fewer crashes a job has, the sooner it begins."""
        self.waiting = sorted([*self.waiting, *suspects], key=lambda run: run.job.crashes)

    def next(self, now: float) -> Run | None:
        """Return the suspect that may begin now; the caller passes it to `begin` once its start is written."""
        ages = self._ages(now)
        if not self.waiting or any(age < WATCH_SECONDS or self._is_last(run) for run, age in ages.items()):
            return None
        run = next(filter(self._has_slot, self.waiting), None)
        if run is not None and self._is_last(run) and any(age < ALONE_SECONDS for age in ages.values()):
            return None
        return run

    def begin(self, run: Run) -> None:
        """Record that a suspect, whose start is written, begins."""
        self.remove(run)
        self._begun.append(run)

    def remove(self, run: Run) -> None:
        """Remove a suspect that waits."""
        self._take([run])

    def take_blocked(self, now: float) -> list[Run]:
        """Remove and return the suspects that wait for a run which is not about to end."""
        long = {run: age for run, age in self._ages(now).items() if age >= WATCH_SECONDS}
        if any(map(self._is_last, long)):
            return self._take(self.waiting)
        if any(age < ALONE_SECONDS for age in long.values()):
            return self._take([run for run in self.waiting if self._is_last(run)])
        return []

    def take_waiting(self, claimed_before: float) -> list[Run]:
        """Remove and return the suspects that were claimed before a time and have not begun."""
        return self._take([run for run in self.waiting if run.claimed_at < claimed_before])

    def _take(self, runs: Sequence[Run]) -> list[Run]:
        taken_runs = set(runs)
        self.waiting = [run for run in self.waiting if run not in taken_runs]
        return [*runs]

    def _ages(self, now: float) -> dict[Run, float]:
        """Return how long each suspect that has begun and not ended has run: 0 if no thread has taken it yet."""
        self._begun = [run for run in self._begun if self._runs.get(run.lease) is run]
        return {run: now - (run.began or now) for run in self._begun}

    def _has_slot(self, run: Run) -> bool:
        """Return whether a slot of the run's lane is free or occupied by a waiting suspect."""
        lane = run.lane
        return lane is None or lane.free + sum(suspect.lane is lane for suspect in self.waiting) > 0

    def _is_last(self, run: Run) -> bool:
        return run.job.crashes >= self._last_chance
