"""How the number of slots follows the load: a burst, then waves. The samples are kept for a picture (``python -m bench.plot``)."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, NamedTuple, Self

from bench.cluster import Cluster
from bench.scenarios import DRAIN_CAP_SECONDS, Row, Size, fresh
from bench.subjects import OURS, run
from bench.worker import Worker

LEAST, MOST = 2, 8
LOOK_SECONDS = 0.05
BURST_JOB_SECONDS, WAVE_JOB_SECONDS, WAVE_SECONDS = 2.0, 0.5, 7.0
UP_SECONDS, DOWN_SECONDS = 2.0, 14.0  # the targets; the quiet time is 10 s
START_SECONDS = 30.0
SCALING = dataclasses.replace(OURS, worker=("-m", "django", "runworkers", "--min-workers", str(LEAST), "--max-workers", str(MOST)))
LOOK = (
    "SELECT (SELECT count(*) FROM jobqueue_job WHERE status = 'QUEUED'), (SELECT count(*) FROM jobqueue_job WHERE status = 'RUNNING'),"
    " (SELECT coalesce(max(slots), 0) FROM jobqueue_worker)"
)


class Sample(NamedTuple):
    """One sample: seconds since the beginning, queued jobs, running jobs, slots."""

    at: float
    queued: int
    running: int
    slots: int


class Watch:
    """A thread that samples the queue and the slots until the context ends."""

    def __init__(self, cluster: Cluster, database: str) -> None:
        """Create it without samples."""
        self.samples: list[Sample] = []
        self._cluster, self._database = cluster, database
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Self:
        """Start to sample."""
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop sampling."""
        self._end.set()
        self._thread.join()

    def until(self, condition: Callable[[Sample], bool], what: str, cap_seconds: float = DRAIN_CAP_SECONDS) -> float:
        """Wait for a new sample that meets the condition; return its time, counted as in the samples."""
        seen, deadline = len(self.samples), time.monotonic() + cap_seconds
        while time.monotonic() < deadline:
            for sample in self.samples[seen:]:
                seen += 1
                if condition(sample):
                    return sample.at
            time.sleep(LOOK_SECONDS / 2)
        raise RuntimeError(f"Not within {cap_seconds} s: {what}")

    def _look(self) -> None:
        began = time.monotonic()
        with self._cluster.connect(self._database) as connection:
            while not self._end.wait(LOOK_SECONDS):
                queued, running, slots = connection.execute(LOOK, prepare=True).fetchone() or (0, 0, 0)
                self.samples.append(Sample(round(time.monotonic() - began, 2), queued, running, slots))


def autoscale(cluster: Cluster, size: Size) -> Iterator[Row]:
    """Sample the slots through a burst and the time after it, then through waves and the time after them."""
    database = fresh(cluster, SCALING)
    with Worker(SCALING, cluster, database), Watch(cluster, database) as watch:
        watch.until(lambda sample: sample.slots == LEAST, "the worker is there", START_SECONDS)
        _enqueue(cluster, database, size.burst, BURST_JOB_SECONDS)
        grown = watch.until(lambda sample: sample.slots == MOST, "all slots")
        ended = watch.until(_is_empty, "the burst is over")
        shrunk = watch.until(lambda sample: sample.slots == LEAST, "the least slots again")
        first = len(watch.samples)
        for _ in range(size.waves):
            began = time.monotonic()
            _enqueue(cluster, database, size.wave, WAVE_JOB_SECONDS)
            watch.until(lambda sample: sample.slots == MOST, "all slots")
            watch.until(_is_empty, "the wave is over")
            time.sleep(max(WAVE_SECONDS - (time.monotonic() - began), 0.0))
        last = len(watch.samples)
        watch.until(lambda sample: sample.slots == LEAST, "the least slots again")
        samples = list(watch.samples)
    came = next(sample.at for sample in samples if sample.queued or sample.running)
    yield _within("autoscale_up", f"a burst of {size.burst} jobs: from {LEAST} to {MOST} slots, s", grown - came, UP_SECONDS, samples)
    yield _within("autoscale_down", f"after the burst: back to {LEAST} slots, s", shrunk - ended, DOWN_SECONDS)
    changes = sum(a.slots != b.slots for a, b in zip(samples[first:last], samples[first + 1 : last], strict=False))
    yield _within("autoscale_changes", f"{size.waves} waves of {size.wave} jobs: changes of the number of slots", changes, 2)


def _enqueue(cluster: Cluster, database: str, jobs: int, seconds: float) -> None:
    run("-m", "bench.client", "rests", str(jobs), str(seconds), environment=cluster.environment(database))


def _is_empty(sample: Sample) -> bool:
    return not sample.queued and not sample.running


def _within(key: str, text: str, value: float, most: float, samples: list[Sample] | None = None) -> Row:
    runs: dict[str, Any] = {"samples": samples} if samples else {}
    return Row(key, text, value, target=f"at most {most:g}", met=value <= most, runs=runs)


AUTOSCALE = {"autoscale": autoscale}
