"""The statements of a line are planned once on a worker's own connection; a session that loses them costs one attempt."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from django.db import OperationalError, connection, transaction
from django.db.models.functions import Now

from jobqueue.core.targets import Target
from jobqueue.db import Claimed, Lease, LeaseHolder
from jobqueue.db.fast_path import plans
from jobqueue.db.fast_path.plans import OPTION
from jobqueue.lifecycle.finish import finish
from jobqueue.lifecycle.outcome import HandOver, Kind, Outcome, Settled
from jobqueue.models import Job, JobEvent, Queue, WebhookDelivery
from jobqueue.signals import job_event
from tests.claiming import claim
from tests.factories import JobFactory
from tests.rivals import Rival

pytestmark = [pytest.mark.fast_path, pytest.mark.session, pytest.mark.postgresql, pytest.mark.django_db(transaction=True)]


class Worker:
    """A replacement for a worker's thread with a connection of its own."""

    def __init__(self, rival: Rival, *, keep_plans: bool = True) -> None:
        self._rival = rival
        self._lease: Lease | None = None
        rival.do(Job.objects.database.reserve_connection, "test", keep_plans=keep_plans)

    def begin(self) -> None:
        """Claim the first job of the line."""
        [job] = self._rival.do(claim, "worker-2", (), 1, 30.0)
        self._lease = Lease(job.id, job.lease_token)

    def end(self, closed: tuple[str, ...] = (), result: str = "null") -> tuple[list[Settled], list[Claimed]]:
        """End the job and take over the next of its target; return what became of both."""
        assert self._lease is not None
        hand_over = HandOver(LeaseHolder("worker-2", 30.0), [self._lease], excluded_queues=closed)
        outcome = Outcome(self._lease, Kind.SUCCESS, result=result, target=Target("", "line"))
        settled = self._rival.do(finish, [outcome], hand_over)
        return settled, [one.following for one in settled if one.following is not None]

    def go_on(self) -> int:
        """End the job, take over the next of its target, and return its id."""
        _, [job] = self.end()
        self._lease = Lease(job.id, job.lease_token)
        return job.id

    def plans(self) -> int:
        """Count what the session has planned."""
        return int(self._rival.do(Job.objects.database.rows, "SELECT count(*) FROM pg_prepared_statements")[0][0])

    def lose_plans(self) -> None:
        """Replace the session by another one, as a pooler does."""

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
    assert worker.plans() == 3  # the lock, the end, the next


def test_no_plans_are_kept_on_a_connection_without_permission(rival: Rival, line: list[int]) -> None:
    worker = Worker(rival, keep_plans=False)
    worker.begin()
    assert [worker.go_on() for _ in range(2)] == line[1:3]
    assert worker.plans() == 0


def test_the_end_and_the_hand_over_go_in_one_message(rival: Rival, line: list[int]) -> None:
    worker = Worker(rival)
    worker.begin()
    assert worker.go_on() == line[1]
    with mock.patch.object(plans, "together", wraps=plans.together) as together:
        assert worker.go_on() == line[2]
    assert [len(call.args[1]) for call in together.call_args_list] == [3]


def test_a_target_that_is_locked_is_passed_over(rival: Rival, line: list[int]) -> None:
    worker = Worker(rival)
    worker.begin()
    with transaction.atomic():
        Job.objects.database.wait_for_locks([Target("", "line").key])
        settled, taken = worker.end()
    assert [one.later for one in settled] == [True]
    assert not taken
    assert list(Job.objects.filter(status="RUNNING").values_list("pk", flat=True)) == line[:1]
    assert worker.go_on() == line[1]


def test_a_row_that_is_locked_is_passed_over(rival: Rival, line: list[int]) -> None:
    worker = Worker(rival)
    worker.begin()
    with transaction.atomic():
        Job.objects.select_for_update().get(pk=line[0])
        settled, taken = worker.end()
    assert [one.later for one in settled] == [True]
    assert not taken
    assert worker.go_on() == line[1]


def test_the_end_of_a_lost_run_takes_nothing(rival: Rival, line: list[int]) -> None:
    worker = Worker(rival)
    worker.begin()
    Job.objects.filter(pk=line[0]).update(lease_token=99)
    settled, taken = worker.end()
    assert [(one.status, one.later) for one in settled] == [("", False)]
    assert not taken
    assert Job.objects.get(pk=line[0]).status == "RUNNING"


def test_the_end_of_a_lost_run_takes_nothing_though_the_target_is_free(rival: Rival, line: list[int]) -> None:
    worker = Worker(rival)
    worker.begin()
    Job.objects.filter(pk=line[0]).update(
        status="CANCELED", holds_target=False, lease_owner="", lease_expires_at=None, heartbeat_at=None, finished_at=Now()
    )
    settled, taken = worker.end()
    assert [(one.status, one.later) for one in settled] == [("", False)]
    assert not taken
    assert not Job.objects.filter(status="RUNNING").exists()


def test_a_result_that_the_database_refuses_is_an_error_that_holds_the_target(rival: Rival, line: list[int]) -> None:
    worker = Worker(rival)
    worker.begin()
    settled, taken = worker.end(result='"\\u0000"')
    assert [one.status for one in settled] == ["ERROR"]
    assert not taken
    assert Job.objects.get(pk=line[0]).message == "outcome could not be stored"


def test_a_job_that_this_worker_cannot_take_is_released_for_other_workers(rival: Rival, line: list[int]) -> None:
    worker = Worker(rival)
    worker.begin()
    Job.objects.filter(status="QUEUED").update(status="PENDING", waiting_for="target")
    Job.objects.filter(pk=line[1]).update(queue="closed")
    settled, taken = worker.end(closed=("closed",))
    assert [one.status for one in settled] == ["SUCCESS"]
    assert not taken
    assert Job.objects.get(pk=line[1]).status == "QUEUED"
    assert [one.releases for one in settled] == [True]


def test_nothing_of_it_outlasts_the_transaction(rival: Rival, line: list[int]) -> None:
    worker = Worker(rival)
    worker.begin()
    worker.go_on()
    shown = [rival.do(Job.objects.database.rows, f"SHOW {name}")[0][0] for name in ("enable_sort", "plan_cache_mode", "jobqueue.step")]
    assert shown == ["on", "auto", ""]


def test_lost_plans_fail_as_an_outage_does_and_none_are_kept_any_more(rival: Rival, line: list[int]) -> None:
    worker = Worker(rival)
    worker.begin()
    worker.go_on()
    worker.lose_plans()
    with pytest.raises(OperationalError, match="lost a prepared plan"):
        worker.go_on()
    assert Job.objects.get(pk=line[1]).status == "RUNNING"
    assert worker.go_on() == line[2]
    assert worker.plans() == 0


def test_server_side_binding_keeps_its_own_way() -> None:
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


@pytest.mark.parametrize("listening", [False, True])
def test_jobs_that_end_in_one_message_have_their_events_and_deliveries(rival: Rival, line: list[int], listening: bool) -> None:
    heard: list[tuple[int, str]] = []

    def listen(sender: Any, job_id: int, name: str, **rest: Any) -> None:
        heard.append((job_id, name))

    Queue.objects.create(name="default", webhook_url="https://hooks.example.org/")
    if listening:
        job_event.connect(listen)
    try:
        worker = Worker(rival)
        worker.begin()
        assert [worker.go_on(), worker.go_on()] == line[1:3]
    finally:
        job_event.disconnect(listen)
    told = [(job_id, name) for job_id in line[:2] for name in ("job.started", "job.completed")]
    assert list(JobEvent.objects.order_by("pk").values_list("job_id", "name")) == told
    assert list(WebhookDelivery.objects.order_by("pk").values_list("job_id", "event")) == told[1::2]
    assert heard == (told if listening else [])
