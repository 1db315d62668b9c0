"""Limits over several worker processes, checked by the starts and ends that the tasks report."""

from __future__ import annotations

import pytest

from jobqueue import enqueue_many, limit_queue
from tests.faults import tasks
from tests.faults.harness import Workers, wait_until

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.django_db(transaction=True)]
MAIL, ALL = 2, 4
SECONDS = 0.03


def most_at_once(workers: Workers, jobs: set[int], dead: int) -> int:
    """Return how many of these jobs ran at one moment; what a killed process ran has no end, and is left out."""
    running, most = 0, 0
    for event in sorted(workers.witness.events, key=lambda event: event.at):
        if event.job in jobs and event.pid != dead:
            running += {"start": 1, "end": -1}.get(event.what, 0)
            most = max(most, running)
    return most


def test_three_workers_never_run_more_than_the_limits_allow_and_a_killed_one_takes_up_no_room_for_long(workers: Workers) -> None:
    limit_queue("mail", MAIL)
    # Six slots for four jobs: no single worker can use up the limit, and each waits for the other workers.
    started = [workers.start(MIN_WORKERS=2, MAX_WORKERS=2, MAX_RUNNING=ALL).ready() for _ in range(3)]
    mail = {one.job_id for one in enqueue_many(tasks.work.using(queue_name="mail", priority=5), [((SECONDS,), {})] * 40)}
    other = {one.job_id for one in enqueue_many(tasks.work.using(queue_name="other"), [((SECONDS,), {})] * 80)}
    wait_until(lambda: len(workers.witness.events) > 40, "they work")
    killed = next(worker for worker in started if worker.pid == workers.witness.events[-1].pid)
    killed.kill()
    wait_until(lambda: workers.jobs.filter(status="SUCCESS").count() == 120, "every job has succeeded", 60)
    alive = [worker for worker in started if worker is not killed]
    assert most_at_once(workers, mail, killed.pid) <= MAIL
    assert 1 < most_at_once(workers, mail | other, killed.pid) <= ALL
    assert len({event.pid for event in workers.witness.events}) > 1
    again = {job for job, number in workers.witness.starts().items() if number > 1}
    assert again <= set(workers.jobs.filter(crashes=1).values_list("pk", flat=True)), "nothing ran twice but for counted recoveries"
    assert [worker.stop() for worker in alive] == [0, 0]
