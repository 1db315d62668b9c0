"""The statements of a line are planned once on a worker's own connection; a session that loses them costs one attempt."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import OperationalError, connection

from jobqueue.db import Lease, Lender
from jobqueue.db.plans import OPTION
from jobqueue.lifecycle.finish import finish
from jobqueue.lifecycle.outcome import HandOver, Kind, Outcome
from jobqueue.line import Target
from jobqueue.models import Job
from tests.claiming import claim
from tests.factories import JobFactory
from tests.rivals import Rival

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db(transaction=True)]


class Worker:
    """Stand for a worker's thread with a connection of its own."""

    def __init__(self, rival: Rival, *, keep_plans: bool = True) -> None:
        self._rival = rival
        self._lease: Lease | None = None
        rival.do(Job.objects.database.reserve_connection, "test", keep_plans=keep_plans)

    def begin(self) -> None:
        """Claim the first job of the line."""
        [job] = self._rival.do(claim, "worker-2", (), 1, 30.0)
        self._lease = Lease(job.id, job.lease_token)

    def go_on(self) -> int:
        """End the job, take over the next of its target, and return its id."""
        assert self._lease is not None
        hand_over = HandOver(Lender("worker-2", 30.0), [self._lease])
        self._rival.do(finish, [Outcome(self._lease, Kind.SUCCESS, target=Target("", "line"))], hand_over)
        [job] = hand_over.taken
        self._lease = Lease(job.id, job.lease_token)
        return job.id

    def plans(self) -> int:
        """Count what the session has planned."""
        return int(self._rival.do(Job.objects.database.rows, "SELECT count(*) FROM pg_prepared_statements")[0][0])

    def lose_plans(self) -> None:
        """Let another session take this one's place, as a pooler does."""

        def lose() -> None:
            raw: Any = connection.connection
            raw.pgconn.exec_(b"DEALLOCATE ALL")  # so that the driver does not learn of it

        self._rival.do(lose)


@pytest.fixture
def line() -> list[int]:
    return [JobFactory(target="line").pk for _ in range(6)]


def test_the_end_of_a_job_and_the_hand_over_are_planned_once(rival: Rival, line: list[int]) -> None:
    worker = Worker(rival)
    worker.begin()
    assert [worker.go_on() for _ in range(4)] == line[1:5]
    assert worker.plans() == 2


def test_no_plans_are_kept_on_a_connection_that_was_not_told_to(rival: Rival, line: list[int]) -> None:
    worker = Worker(rival, keep_plans=False)
    worker.begin()
    assert [worker.go_on() for _ in range(2)] == line[1:3]
    assert worker.plans() == 0


def test_lost_plans_fail_as_an_outage_does_and_none_are_kept_any_more(rival: Rival, line: list[int]) -> None:
    worker = Worker(rival)
    worker.begin()
    worker.go_on()
    worker.lose_plans()
    with pytest.raises(OperationalError, match="lost a plan"):
        worker.go_on()
    assert Job.objects.get(pk=line[1]).status == "RUNNING"
    assert worker.go_on() == line[2]
    assert worker.plans() == 0


def test_server_side_binding_keeps_its_own_way() -> None:
    from jobqueue.db import plans

    options: dict[str, Any] = {"server_side_binding": True}
    plans.keep(options)
    assert OPTION not in options


@pytest.mark.parametrize(("keys", "sorts"), [([1], "off"), ([1, 2], "on")])
def test_the_ends_of_many_targets_may_be_sorted(rival: Rival, keys: list[int], sorts: str) -> None:
    database = Job.objects.database
    Worker(rival)

    def told() -> str:
        with database.atomic():
            database.try_locks(keys)
            return str(database.rows("SHOW enable_sort")[0][0])

    assert rival.do(told) == sorts
    assert rival.do(lambda: database.rows("SHOW enable_sort")[0][0]) == "on"
