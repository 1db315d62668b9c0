"""Unique keys: one live job per key, in any race, and the caller's transaction stays usable."""

import threading
from concurrent.futures import Future
from typing import Any

import pytest
from django.db import connections, transaction

from jobqueue import InvalidOption, cancel, enqueue_many, pause, resume
from jobqueue.core import states
from jobqueue.models import Job
from jobqueue.testing import run_until_idle
from tests.factories import JobFactory
from tests.rivals import Rival, wait_until_somebody_waits_for_a_lock
from tests.tasks_layer import samples

KEYED = samples.plain.using(unique_key="report:7")
TRAITS = {
    "queued": True,
    "scheduled": True,
    "waiting_for_retry": True,
    "running": True,
    "paused": True,
    "error": False,
    "success": False,
    "canceled": False,
}


@pytest.mark.django_db
@pytest.mark.parametrize(("trait", "live"), TRAITS.items())
def test_only_a_live_job_holds_its_key(trait: str, live: bool) -> None:
    job = JobFactory(**{trait: True}, task=KEYED.module_path, unique_key="report:7")
    result = KEYED.enqueue(2)
    assert (result.job_id == job.pk, result.created) == (live, not live)
    assert result.job_status == (job.status if live else "QUEUED")
    assert Job.objects.count() == (1 if live else 2)


def test_the_traits_above_cover_every_status() -> None:
    assert {JobFactory.build(**{trait: True}).status for trait in TRAITS} == set(states.Status.values)


@pytest.mark.django_db
def test_the_result_of_the_live_job_shows_that_jobs_arguments() -> None:
    KEYED.enqueue("first")
    again = KEYED.enqueue("second")
    assert (again.created, again.args) == (False, ["first"])


@pytest.mark.django_db
def test_the_callers_transaction_stays_usable() -> None:
    with transaction.atomic():
        first = KEYED.enqueue()
        second = KEYED.enqueue()
        other = samples.plain.enqueue()
    assert first.id == second.id != other.id
    assert Job.objects.count() == 2


@pytest.mark.django_db
def test_a_rolled_back_enqueue_frees_its_key() -> None:
    with transaction.atomic():
        KEYED.enqueue()
        transaction.set_rollback(True)
    assert KEYED.enqueue().created


@pytest.mark.django_db
def test_a_callable_makes_the_key_of_the_arguments() -> None:
    one, two, again = samples.keyed.enqueue(1), samples.keyed.enqueue(1, kind="b"), samples.keyed.enqueue(1, kind="a")
    assert one.id == again.id != two.id
    assert set(Job.objects.values_list("unique_key", flat=True)) == {"a:1", "b:1"}


@pytest.mark.django_db
def test_a_callable_that_returns_none_means_no_key() -> None:
    task = samples.plain.using(unique_key=lambda *args: None)
    assert task.enqueue().id != task.enqueue().id


@pytest.mark.django_db
@pytest.mark.parametrize("made", ["", "x" * 201, 7, b"x", print])
def test_a_callable_that_returns_no_key_is_refused(made: Any) -> None:
    with pytest.raises(InvalidOption, match="unique_key"):
        samples.plain.using(unique_key=lambda: made).enqueue()
    assert not Job.objects.exists()


@pytest.mark.django_db
def test_the_end_of_the_job_frees_its_key() -> None:
    first = KEYED.enqueue()
    assert run_until_idle() == 1
    assert KEYED.enqueue().job_id != first.job_id


@pytest.mark.django_db
def test_a_paused_job_holds_its_key_and_a_canceled_one_does_not() -> None:
    first = KEYED.enqueue()
    assert pause(first.job_id)
    assert KEYED.enqueue().id == first.id
    assert cancel(first.job_id)
    assert KEYED.enqueue().created


@pytest.mark.django_db
def test_resuming_a_job_whose_key_is_taken_is_refused_and_names_the_other() -> None:
    failed = JobFactory(error=True, unique_key="report:7")
    other = KEYED.enqueue()
    with transaction.atomic():
        answer = resume(failed.pk)
        assert not answer
        assert f"job {other.job_id}" in answer.reason
        assert "report:7" in answer.reason
        assert Job.objects.get(pk=failed.pk).status == "ERROR"
    assert cancel(other.job_id)
    assert resume(failed.pk)
    assert Job.objects.get(pk=failed.pk).status == "QUEUED"


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
def test_of_many_who_race_one_makes_the_job() -> None:
    together = threading.Barrier(6)
    found: list[Any] = []

    def race() -> None:
        try:
            together.wait(10)
            found.extend((number, samples.plain.using(unique_key=f"race:{number}").enqueue()) for number in range(20))
        finally:
            connections.close_all()

    threads = [threading.Thread(target=race) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == 120
    for number in range(20):
        results = [result for place, result in found if place == number]
        assert len({result.id for result in results}) == 1
        assert sum(result.created for result in results) == 1
    assert Job.objects.count() == 20


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("commits", [True, False])
def test_an_enqueue_waits_for_an_open_transaction_with_the_same_key(rival: Rival, *, commits: bool) -> None:
    with rival.transaction():
        theirs = rival.do(KEYED.enqueue)
        ours: Future[Any] = Future()
        thread = threading.Thread(target=enqueue_into, args=(ours,))
        thread.start()
        wait_until_somebody_waits_for_a_lock()
        assert not ours.done()
        if not commits:
            rival.do(transaction.set_rollback, True)
    result = ours.result(20)
    thread.join(20)
    assert (result.id == theirs.id, result.created) == (commits, not commits)
    assert Job.objects.count() == 1


def enqueue_into(future: Future[Any]) -> None:
    try:
        with transaction.atomic():
            result = KEYED.enqueue()
            assert Job.objects.filter(pk=result.job_id).exists()  # the transaction is usable
        future.set_result(result)
    except BaseException as error:  # noqa: BLE001 - the test's thread raises it again
        future.set_exception(error)
    finally:
        connections.close_all()


BY_KEY = samples.plain.using(unique_key=lambda key: key, target="one")


def _calls(keys: str) -> list[tuple[list[str], dict[str, str]]]:
    return [([key], {}) for key in keys]


@pytest.mark.django_db
def test_many_with_keys_come_and_run_in_the_order_of_the_calls() -> None:
    live = BY_KEY.enqueue("m")
    results = enqueue_many(BY_KEY, _calls("zmcaz"))
    ids = [result.job_id for result in results]
    assert [result.created for result in results] == [True, False, True, True, False]
    assert [result.args for result in results] == [["z"], ["m"], ["c"], ["a"], ["z"]]
    assert (ids[1], ids[4]) == (live.job_id, ids[0])
    assert live.job_id < ids[0] < ids[2] < ids[3]
    assert list(Job.objects.order_by("pk").values_list("unique_key", flat=True)) == ["m", "z", "c", "a"]


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_two_who_enqueue_the_same_keys_in_opposite_orders_do_not_wait_for_each_other(rival: Rival) -> None:
    others = [Rival(), Rival()]
    try:
        with rival.transaction():
            rival.do(BY_KEY.enqueue, "m")  # both have taken a key before they come to this one
            made = []
            for number, (other, keys) in enumerate(zip(others, ("amz", "zma"), strict=True), start=1):
                made.append(other.start(enqueue_many, BY_KEY, _calls(keys)))
                wait_until_somebody_waits_for_a_lock(number)
        first, second = (call.result(20) for call in made)
        assert [result.job_id for result in first] == [result.job_id for result in second][::-1]
    finally:
        for other in others:
            other.close()
    assert Job.objects.count() == 3
