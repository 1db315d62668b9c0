"""The claimer: fair turns among tenants, cursors, pauses and limits, with the real database."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection

from jobqueue.core.targets import Target
from jobqueue.db import Claimed, LeaseHolder
from jobqueue.lifecycle.queues import limit_queue, pause_queue, resume_queue
from jobqueue.models import Job
from jobqueue.worker import claim_policy
from jobqueue.worker.claim_policy import ClaimPolicy
from jobqueue.worker.claiming import claimer
from jobqueue.worker.claiming.claimer import HEAD_SECONDS, MAX_TENANTS, Claimer, Pick
from jobqueue.worker.running.lanes import Lanes
from jobqueue.worker.running.pool import Pool
from tests.factories import JobFactory
from tests.rivals import Rival
from tests.unchecked import refusing_changes
from tests.worker.parts import PATIENCE_SECONDS

pytestmark = pytest.mark.django_db


class Scene:
    """A claimer, its policy and its lanes, whose threads get no runs."""

    def __init__(self, *queues: str, max_running: int | None = None) -> None:
        self.lanes = Lanes(lambda: Pool(lambda *_: None))
        self.policy = ClaimPolicy(queues, max_running, self.lanes.set_slots)
        self.claimer = Claimer(LeaseHolder("worker-1", 30.0), self.policy, self.lanes)

    def pick(self, wanted: int, tenant: str = "") -> Pick:
        """Pick once for the lane of a tenant, knowing who has something queued."""
        self.look_around()
        return self.claimer.pick(self.lanes.of(tenant), wanted)

    def look_around(self) -> None:
        """Take in all that has changed."""
        self.policy.invalidate()
        self.claimer.find_tenants()
        self.claimer._found_at = 0.0
        self.claimer.find_more_tenants()

    def age(self) -> None:
        """Move the last polls from the head to the past."""
        for walk in self.claimer._walks.values():
            walk.head_at -= HEAD_SECONDS

    def close(self) -> None:
        """End the threads of the lanes."""
        self.lanes.close()
        assert self.lanes.join(time.monotonic() + PATIENCE_SECONDS)


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.close()


def flood(number: int, **job: Any) -> None:
    Job.objects.bulk_create([Job(task="tests.tasks.add", args=[1], **job) for _ in range(number)])


@pytest.fixture
def rival() -> Iterator[Rival]:
    made = Rival()
    yield made
    made.close()


def tenants(jobs: list[Claimed]) -> dict[str, int]:
    return dict(Counter(job.tenant for job in jobs))


def ids(jobs: list[Claimed]) -> list[int]:
    return [job.id for job in jobs]


@pytest.mark.long
def test_each_pass_is_shared_evenly_in_any_flood(scene: Scene) -> None:
    flood(500, tenant="acme")
    for tenant in ("", "globex"):
        flood(12, tenant=tenant)
    for _ in range(4):
        assert tenants(scene.pick(9).jobs) == {"acme": 3, "": 3, "globex": 3}
    assert tenants(scene.pick(9).jobs) == {"acme": 9}, "slots that other tenants do not need go to a tenant with jobs"


@pytest.mark.long
def test_slots_that_one_tenant_does_not_need_go_to_the_others_in_the_same_pass(scene: Scene) -> None:
    flood(500, tenant="acme")
    flood(1, tenant="globex")
    flood(500, tenant="initech")
    assert tenants(scene.pick(12).jobs) == {"acme": 6, "globex": 1, "initech": 5}


@pytest.mark.long
def test_with_one_slot_tenants_alternate(scene: Scene) -> None:
    flood(500, tenant="acme")
    flood(3, tenant="globex")
    order = [next(iter(tenants(scene.pick(1).jobs))) for _ in range(8)]
    assert order == ["acme", "globex"] * 3 + ["acme"] * 2


def test_a_tenant_that_comes_into_a_flood_has_its_turn_in_the_next_pass(scene: Scene) -> None:
    flood(500, tenant="acme")
    assert tenants(scene.pick(8).jobs) == {"acme": 8}
    late = JobFactory(tenant="globex")
    scene.claimer.notify("globex")
    scene.claimer.find_tenants()
    assert late.pk in ids(scene.claimer.pick(scene.lanes.shared, 8).jobs)


def test_priorities_count_within_a_tenant_and_not_between_two(scene: Scene) -> None:
    low, high = JobFactory(tenant="acme", priority=1), JobFactory(tenant="acme", priority=9)
    other = JobFactory(tenant="globex", priority=-5)
    flood(20, tenant="acme", priority=0)
    assert ids(scene.pick(2).jobs) == [high.pk, other.pk]
    assert ids(scene.pick(1).jobs) == [low.pk]


def test_a_tenant_with_a_lane_is_claimed_in_it_alone(scene: Scene, settings: Any) -> None:
    settings.JOBQUEUE = {"TENANTS": {"acme": 2}}
    flood(20, tenant="acme")
    flood(20, tenant="globex")
    assert tenants(scene.pick(8).jobs) == {"globex": 8}
    assert tenants(scene.pick(2, "acme").jobs) == {"acme": 2}


def test_a_flood_that_gets_a_lane_leaves_the_shared_one_at_once_and_returns_when_it_loses_it(scene: Scene, settings: Any) -> None:
    flood(50, tenant="acme")
    flood(50, tenant="globex")
    assert tenants(scene.pick(4).jobs) == {"acme": 2, "globex": 2}
    settings.JOBQUEUE = {"TENANTS": {"acme": 2}}
    assert tenants(scene.pick(4).jobs) == {"globex": 4}
    assert tenants(scene.pick(2, "acme").jobs) == {"acme": 2}
    settings.JOBQUEUE = {}
    assert tenants(scene.pick(4).jobs) == {"acme": 2, "globex": 2}


@pytest.mark.parametrize("at_once", [100, pytest.param(MAX_TENANTS, marks=pytest.mark.slow)])
def test_however_many_tenants_there_are_each_has_its_turn(scene: Scene, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(claimer, "MAX_TENANTS", at_once)
    number = at_once + at_once // 5
    # No tenant runs out of jobs: the last ones must not wait for that.
    Job.objects.bulk_create([Job(task="tests.tasks.add", args=[1], tenant=f"t{one:05}") for one in range(number) for _ in range(3)])
    flood(200, tenant="acme")
    served: Counter[str] = Counter()
    for _ in range(2 * number // 50 + 1):
        served.update(tenants(scene.pick(50).jobs))
        if len(served) > number:
            break
    assert len(served) == number + 1
    assert served["acme"] < 100, "it waited for its turns, too"


def test_a_job_of_higher_priority_is_found_by_the_next_poll_from_the_head(scene: Scene) -> None:
    flood(30)
    scene.pick(5)
    urgent = JobFactory(priority=5)
    assert urgent.pk not in ids(scene.pick(5).jobs), "it lies before the cursor"
    scene.age()
    assert urgent.pk in ids(scene.pick(5).jobs)


def test_jobs_before_the_cursor_are_found_when_none_are_after_it(scene: Scene) -> None:
    first, second = JobFactory(), JobFactory()
    assert ids(scene.pick(5).jobs) == [first.pk, second.pk]
    Job.objects.filter(pk=first.pk).update(status="QUEUED", lease_owner="", lease_expires_at=None, heartbeat_at=None)
    assert ids(scene.pick(5).jobs) == [first.pk]


def test_a_paused_queue_is_not_claimed_from_and_one_that_is_resumed_is(scene: Scene) -> None:
    held, free = JobFactory(queue="mail", priority=9), JobFactory(queue="reports")
    pause_queue("mail")
    assert ids(scene.pick(5).jobs) == [free.pk]
    assert ids(scene.pick(5).jobs) == []
    resume_queue("mail")
    assert ids(scene.pick(5).jobs) == [held.pk]


def test_a_tenant_whose_queues_are_all_paused_takes_no_turn_from_the_others(scene: Scene) -> None:
    flood(50, tenant="acme", queue="mail")
    flood(50, tenant="globex", queue="reports")
    pause_queue("mail")
    assert tenants(scene.pick(8).jobs) == {"globex": 8}


@pytest.fixture
def crowded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make 300 tenants with a job in the queue "mail", found by a hundred at a time."""
    monkeypatch.setattr(claimer, "MAX_TENANTS", 100)
    Job.objects.bulk_create([Job(task="tests.tasks.add", args=[1], tenant=f"t{number:03}", queue="mail") for number in range(300)])


@pytest.mark.long
@pytest.mark.usefixtures("crowded")
@pytest.mark.parametrize("queues", [(), ("reports",)], ids=["paused", "not served"])
def test_tenants_that_have_something_only_where_nothing_may_be_taken_have_no_turns(
    queues: tuple[str, ...], django_assert_max_num_queries: Any
) -> None:
    scene = Scene(*queues)
    if not queues:
        pause_queue("mail")
    scene.look_around()
    assert (len(scene.lanes.shared.turns), scene.claimer.is_halfway) == (0, True)
    found, told = JobFactory(tenant="zz", queue="reports"), JobFactory(tenant="t299", queue="reports")
    scene.claimer.notify("t299")
    with django_assert_max_num_queries(24):
        assert ids(scene.pick(8).jobs) == [told.pk]
        while scene.claimer.is_halfway:
            scene.look_around()
        assert ids(scene.pick(8).jobs) == [found.pk]
    scene.close()


@pytest.mark.usefixtures("crowded")
@pytest.mark.parametrize("why", ["queue", "all"])
def test_a_limit_that_leaves_no_room_is_found_once_and_not_by_each_tenant(why: str, django_assert_max_num_queries: Any) -> None:
    limit_queue("mail", 1)
    JobFactory(running=True, queue="mail")
    scene = Scene(max_running=1 if why == "all" else None)
    scene.look_around()
    told = JobFactory(tenant="t299", queue="reports")
    scene.claimer.notify("t299")
    scene.claimer.find_tenants()
    assert len(scene.lanes.shared.turns) > 100
    with django_assert_max_num_queries(30):
        pick = scene.claimer.pick(scene.lanes.shared, 8)
    assert (ids(pick.jobs), pick.limited, pick.more) == ([told.pk] if why == "queue" else [], True, False)
    scene.close()


@pytest.mark.long
@pytest.mark.usefixtures("crowded")
def test_tenants_whose_jobs_others_have_taken_do_not_make_a_poll_longer(scene: Scene, django_assert_max_num_queries: Any) -> None:
    scene.look_around()
    Job.objects.all().delete()
    with django_assert_max_num_queries(20 * (1 if connection.vendor == "postgresql" else 6)):
        pick = scene.claimer.pick(scene.lanes.shared, 8)
    assert (pick.jobs, pick.more, pick.must_continue) == ([], True, True)
    for _ in range(20):
        pick = scene.claimer.pick(scene.lanes.shared, 8)
    assert (pick.more, len(scene.lanes.shared.turns)) == (False, 0)


def test_however_many_queues_are_paused_the_others_are_served(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim_policy, "MAX_QUEUES", 10)
    for number in range(30):
        JobFactory(queue=f"q{number:02}")
        if number not in (3, 29):
            pause_queue(f"q{number:02}")
    assert {job.queue for job in scene.pick(8).jobs} == {"q03", "q29"}


@pytest.mark.long
def test_however_many_queues_there_are_beside_one_with_a_limit_each_has_its_turn(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim_policy, "MAX_QUEUES", 10)
    limit_queue("q00", 1)
    for number in reversed(range(36)):
        flood(20, queue=f"q{number:02}")
    # The first ten, the next, the third ten, and the rest with the first ones: of each, the oldest.
    order = [sorted({job.queue for job in scene.pick(10).jobs}) for _ in range(4)]
    assert order == [["q09"], ["q19"], ["q29"], ["q35"]]
    served = {job.queue for _ in range(12) for job in scene.pick(10).jobs}
    assert served >= {"q13", "q23", "q33", "q35"}, "none waits for the next poll from the head"


def test_a_pass_heeds_the_limits_and_says_so(scene: Scene) -> None:
    limit_queue("mail", 2)
    flood(10, queue="mail")
    flood(3, queue="reports")
    pick = scene.pick(10)
    assert (Counter(job.queue for job in pick.jobs), pick.limited) == ({"mail": 2, "reports": 3}, True)
    assert (scene.pick(10).jobs, Job.objects.filter(status="RUNNING").count()) == ([], 5)


def test_a_limit_of_all_jobs_counts_every_tenant(scene: Scene) -> None:
    limited = Scene(max_running=3)
    flood(10, tenant="acme")
    flood(10, tenant="globex")
    assert tenants(limited.pick(10).jobs) == {"acme": 3}
    assert limited.pick(10).jobs == []
    limited.close()


def test_without_pauses_and_limits_a_pass_is_one_statement_for_each_tenant(scene: Scene, django_assert_num_queries: Any) -> None:
    flood(50, tenant="acme")
    flood(50, tenant="globex")
    scene.look_around()
    each = 1 if connection.vendor == "postgresql" else 4  # on SQLite a query and a write, in a transaction
    with django_assert_num_queries(2 * each):
        assert len(scene.claimer.pick(scene.lanes.shared, 8).jobs) == 8


@pytest.mark.long
@pytest.mark.postgresql
@pytest.mark.parametrize("max_running", [None, 50])
@pytest.mark.parametrize("targets", [1, 3, 300])
def test_jobs_whose_targets_are_locked_block_no_others(rival: Rival, targets: int, max_running: int | None) -> None:
    scene = Scene(max_running=max_running)
    names = [f"customer:{number}" for number in range(targets)]
    for name in names:
        flood(300 // targets, target=name)
    free, other, late = JobFactory(), JobFactory(target="customer:free"), JobFactory(priority=-1)
    with rival.holding(*(Target("", name).key for name in names)):
        found = scene.pick(8)
        while found.more and not found.moved:  # there is no pause between two polls
            assert found.must_continue
            found = scene.claimer.pick(scene.lanes.shared, 8)
        assert ids(found.jobs) == [free.pk, other.pk, late.pk]
        scene.age()
        again = scene.pick(8)
        while again.more:
            again = scene.claimer.pick(scene.lanes.shared, 8)
        assert (again.jobs, again.busy) == ([], True), "at the end it says why it found nothing"
        scene.age()
        urgent = JobFactory(priority=5)
        assert ids(scene.pick(8).jobs) == [urgent.pk]
    scene.age()
    assert len(scene.pick(8).jobs) == min(targets, 8)
    scene.close()


@pytest.mark.postgresql
def test_locked_jobs_of_one_queue_do_not_hide_jobs_behind_its_limit(scene: Scene, rival: Rival) -> None:
    limit_queue("mail", 2)
    flood(30, queue="mail", target="customer:7")
    free = [JobFactory(queue="mail").pk for _ in range(3)]
    with rival.holding(Target("", "customer:7").key):
        assert ids(scene.pick(8).jobs) == free[:2]


@pytest.mark.postgresql
def test_a_paused_queue_costs_no_walk_over_its_jobs() -> None:
    columns = "(task, tenant, queue, priority, args) SELECT 'tests.tasks.add', 'acme', 'mail', 5, '[1]'"
    with connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO jobqueue_job {columns} FROM generate_series(1, 30000)")
    pause_queue("mail")
    for queues in ((), ("mail", "reports")):
        free, scene = JobFactory(tenant="acme", queue="reports"), Scene(*queues)
        sent: list[tuple[str, Any]] = []

        def remember(execute: Any, sql: str, params: Any, *more: Any, sent: Any = sent) -> Any:
            sent.append((sql, params))
            return execute(sql, params, *more)

        scene.look_around()
        with connection.execute_wrapper(remember):
            assert ids(scene.claimer.pick(scene.lanes.shared, 8).jobs) == [free.pk]
        assert len(sent) == (2 if not queues else 1), "its queues, where none is named, and the claim"
        assert sum(map(pages, sent)) < 50
        scene.close()


def pages(sent: tuple[str, Any]) -> int:
    """Return how many pages a statement touches, run once more."""
    *settings, last = sent[0].split("; ")
    with connection.cursor() as cursor:
        for setting in settings:
            cursor.execute(setting)
        cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {last}", sent[1])
        found = cursor.fetchone()[0]
    plan = (json.loads(found) if isinstance(found, str) else found)[0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def test_a_claimer_at_rest_asks_once_whether_a_job_is_queued(scene: Scene, django_assert_num_queries: Any) -> None:
    scene.look_around()
    with django_assert_num_queries(1):
        scene.claimer.find_tenants()
    JobFactory()
    scene.claimer.find_tenants()
    assert len(scene.lanes.shared.turns) == 1


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("target", ["", "customer:"])
@pytest.mark.parametrize("max_running", [None, 50])
def test_queued_rows_that_refuse_any_change_do_not_block_the_others(target: str, max_running: int | None) -> None:
    bad = [JobFactory(target=target and f"{target}{number}").pk for number in range(5)]
    good = [JobFactory().pk for _ in range(3)]
    scene = Scene(max_running=max_running)
    try:
        with refusing_changes(f"old.id <= {bad[-1]}"):
            assert [job.id for job in scene.pick(2).jobs] == good[:2]
            scene.age()
            assert [job.id for job in scene.pick(1).jobs] == good[2:]
            assert (scene.pick(1).jobs, scene.claimer._stuck.set_aside) == ([], bad)
    finally:
        scene.close()


@pytest.mark.django_db(transaction=True)
def test_a_queued_row_that_refuses_any_change_spoils_no_job_behind_it_in_its_line(scene: Scene) -> None:
    JobFactory(running=True, target="customer:7")
    bad, *behind = [JobFactory(target="customer:7").pk for _ in range(4)]
    good = JobFactory()
    with refusing_changes(f"old.id = {bad}"):
        assert [job.id for job in scene.pick(3).jobs] == [good.pk]
        scene.age()
        assert scene.pick(3).jobs == []
    assert [Job.objects.get(pk=job).status for job in (bad, *behind)] == ["QUEUED", "PENDING", "PENDING", "PENDING"]


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
def test_many_rows_that_cannot_be_claimed_are_set_aside_in_one_poll(scene: Scene) -> None:
    flood(12)
    good = JobFactory()
    with refusing_changes(f"old.id < {good.pk} AND new.status = 'RUNNING'"):
        assert [job.id for job in scene.pick(3).jobs] == [good.pk]
    assert Job.objects.filter(status="ERROR").count() == 12


def test_patterns_take_what_they_serve_best_first_and_leave_the_rest() -> None:
    made = Scene("mail-*", "!mail-bulk")
    try:
        flood(30, queue="mail-bulk", priority=9)
        flood(30, queue="sms", tenant="acme")
        first, best = JobFactory(queue="mail-a"), JobFactory(queue="mail-b", priority=5)
        its = JobFactory(queue="mail-a", tenant="acme")
        assert [job.id for job in made.pick(10).jobs] in ([best.pk, first.pk, its.pk], [its.pk, best.pk, first.pk])
        assert made.pick(10).jobs == []
        assert {*Job.objects.filter(status="QUEUED").values_list("queue", flat=True)} == {"mail-bulk", "sms"}
    finally:
        made.close()


@pytest.mark.parametrize("told", [True, False])
def test_a_queue_that_appears_later_is_served_at_the_next_poll(told: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim_policy, "NAMES_SECONDS", 60.0)
    made = Scene("mail-*", "!mail-bulk")
    try:
        flood(3, queue="mail-a")
        made.claimer.find_tenants()
        assert len(made.claimer.pick(made.lanes.shared, 2).jobs) == 2
        new = JobFactory(queue="mail-new")
        JobFactory(queue="mail-bulk", priority=9)
        if told:
            made.claimer.notify("")
            made.claimer.find_tenants()
            assert len(found := made.claimer.pick(made.lanes.shared, 10).jobs) == 2
            assert new.pk in ids(found)
        else:
            for number in (1, 0):  # the last job of the queue that is known, then none: the names are read anew
                assert len(made.claimer.pick(made.lanes.shared, 10).jobs) == number
                made.age()
            made.claimer.find_tenants()
            assert ids(made.claimer.pick(made.lanes.shared, 10).jobs) == [new.pk]
        assert "mail-bulk" not in Job.objects.filter(status="RUNNING").values_list("queue", flat=True)
    finally:
        made.close()


def test_more_queues_than_one_poll_finds_are_all_served_by_patterns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim_policy, "MAX_QUEUES", 3)
    made = Scene("mail-*")
    try:
        for number in range(10):
            JobFactory(queue=f"bulk-{number}")
            JobFactory(queue=f"mail-{number}")
        taken = [job.queue for _ in range(12) for job in made.pick(3).jobs]
        assert sorted(taken) == [f"mail-{number}" for number in range(10)]
    finally:
        made.close()
