"""Compare jobs of the catalogue with their predictions."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from demo_project.workload.kinds import KINDS, Foretold, foretell
from demo_project.workload.tasks import TASKS
from jobqueue.core.states import ENDED
from jobqueue.models import Job

# The clocks of the process and of the database time a run. A worker sends how long ago a run began, and the server
# counts from the time at which it reads that, which can be late on a busy machine.
TOLERANCE_SECONDS = 0.25


@dataclass(frozen=True)
class Verdict:
    """The result for one job: whether it has ended, and how it differs from its prediction."""

    job_id: int
    foretold: Foretold
    ended: bool
    differences: tuple[str, ...]


def verdicts(kinds: Sequence[str] = (), seed: str = "") -> Iterator[Verdict]:
    """Yield a verdict on each job of these kinds (empty: all kinds) and this seed."""
    paths = {TASKS[name].module_path: name for name in kinds or KINDS}
    for job in Job.objects.filter(task__in=paths).order_by("pk").iterator():
        told = _of(job, paths[job.task], seed)
        if told is not None:
            ended = job.status in ENDED
            yield Verdict(job.pk, told, ended, tuple(differences(job, told)) if ended else ())


def differences(job: Job, told: Foretold) -> Iterator[str]:
    """Yield the differences between an ended job and its prediction."""
    if job.status != told.outcome:
        yield f"it ended as {job.status}, predicted was {told.outcome} ({job.message[:200]})"
        return
    # A run whose worker was lost is one more run, and can replace one that was to fail.
    if not told.attempts <= job.attempt <= told.attempts + job.crashes:
        yield f"it took {job.attempt} runs, {job.crashes} of them lost with a worker; predicted were {told.attempts}"
    if job.result != told.result:
        yield f"its result is {job.result!r}, predicted was {told.result!r}"
    ran = job.report()["ran_seconds"] or 0.0
    if ran < told.duration_seconds - TOLERANCE_SECONDS:
        yield f"its last run took {ran:.2f} s, predicted were {told.duration_seconds:.2f} s"


def _of(job: Job, kind: str, seed: str) -> Foretold | None:
    """Return the prediction for a job; None if it has another seed, or arguments that are not the catalogue's."""
    match job.args:
        case [int(number), str(its_seed), int(pace) | float(pace)] if its_seed == seed:
            return foretell(kind, number, seed, pace)
    return None
