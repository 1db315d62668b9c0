"""The catalogue of work: what each job does, predicted from its kind, number and seed alone.

Nothing here is random: the same kind, number and seed give the same duration, outcome and attempts, on all
machines. So ``workload/verdict.py`` can check later whether each job of a mix ended as predicted.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b

RETRIES = 3
"""How many attempts a kind has that is tried again."""


@dataclass(frozen=True)
class Kind:
    """A kind of job: the duration of a run, the number of failures before the last run, and the end of the last run."""

    name: str
    text: str
    seconds: tuple[float, float] = (0.0, 0.0)
    outcome: str = "SUCCESS"
    failing: tuple[int, int] = (0, 0)
    """The minimum and the maximum number of runs that fail and are retried, before the last one."""
    weight: int = 1
    """How often it is in a mix, relative to the other kinds."""

    @property
    def retryable(self) -> bool:
        """Whether a run that fails is retried."""
        return self.failing[1] > 0


@dataclass(frozen=True)
class Foretold:
    """The prediction for one job: the duration of each run, the number of runs, and the end."""

    kind: str
    number: int
    duration_seconds: float
    outcome: str
    attempts: int
    retryable: bool
    result: int | None


KINDS = {
    kind.name: kind
    for kind in (
        Kind("instant", "returns at once", weight=6),
        Kind("short", "takes a moment, in a blocking call", (0.02, 0.2), weight=4),
        Kind("long", "takes seconds, and reports its progress", (2.0, 5.0)),
        Kind("sleepy", "waits in context.wait, and can be stopped at any time", (0.5, 1.5), weight=2),
        Kind("heavy", "keeps a processor busy", (0.05, 0.3), weight=2),
        Kind("coroutine", "is an async def that awaits", (0.1, 1.0), weight=3),
        Kind("flaky", "fails once or twice, then succeeds", (0.0, 0.1), failing=(1, RETRIES - 1), weight=2),
        Kind("gives_up", f"fails {RETRIES} times, and is then given up", (0.0, 0.05), "ERROR", (RETRIES - 1, RETRIES - 1)),
        Kind("broken", "fails at once, and is not retried", outcome="ERROR"),
        Kind("hopeless", "raises Fatal, so that its further attempts do not count", outcome="ERROR"),
        Kind("slow_then_fails", "works for a while, then fails", (0.3, 1.0), "ERROR"),
        Kind("coroutine_fails", "is an async def that fails after a while", (0.1, 0.5), "ERROR"),
        Kind("cancels_itself", "requests its own cancellation, and is interrupted", (0.0, 0.2), "CANCELED"),
    )
}


def foretell(kind: str, number: int, seed: str = "", pace: float = 1.0) -> Foretold:
    """Return the prediction for a job; `pace` multiplies the duration of each run."""
    one = KINDS[kind]
    least, most = one.seconds
    seconds = least + (most - least) * _fraction(seed, kind, number, "seconds")
    few, many = one.failing
    failing = few + int((many - few + 1) * _fraction(seed, kind, number, "failing"))
    result = int(1_000_000 * _fraction(seed, kind, number, "result")) if one.outcome == "SUCCESS" else None
    return Foretold(kind, number, round(seconds * pace, 3), one.outcome, failing + 1, one.retryable, result)


def catalogue(count: int, kinds: Sequence[str] = (), seed: str = "", pace: float = 1.0) -> Iterator[Foretold]:
    """Yield the predictions for the jobs 1 to `count` of a mix of kinds (empty: all kinds), by the weights of the kinds."""
    names = [name for name in kinds or KINDS for _ in range(KINDS[name].weight)]
    for number in range(1, count + 1):
        yield foretell(names[int(len(names) * _fraction(seed, "mix", number, ""))], number, seed, pace)


def _fraction(seed: str, kind: str, number: int, what: str) -> float:
    """Return a pseudorandom number from 0 to below 1 that is always the same for the same arguments."""
    digest = blake2b("\0".join((seed, kind, str(number), what)).encode(), digest_size=6).digest()
    return int.from_bytes(digest) / 2**48
