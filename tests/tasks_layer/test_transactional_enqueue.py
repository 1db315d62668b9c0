"""An enqueue is part of the caller's transaction: not seen before the commit, gone with the rollback."""

import contextlib
from collections.abc import Iterator

import pytest
from django.db import transaction

from jobqueue import compat
from jobqueue.models import Job
from jobqueue.testing import run_until_idle
from tests.rivals import Rival
from tests.tasks_layer import samples

pytestmark = pytest.mark.django_db(transaction=True)


class Undo(Exception):
    """Roll back."""


@contextlib.contextmanager
def undone() -> Iterator[None]:
    """Roll back what the block does, as an exception in it would."""
    with contextlib.suppress(Undo), transaction.atomic():
        yield
        raise Undo


def test_a_job_is_seen_by_others_with_the_commit_and_not_before(rival: Rival) -> None:
    with transaction.atomic():
        result = samples.plain.enqueue(1)
        assert Job.objects.filter(pk=result.job_id).exists()
        if transaction.get_connection().vendor == "postgresql":  # on SQLite no other connection can claim meanwhile
            assert rival.do(run_until_idle) == 0
    assert rival.do(run_until_idle) == 1
    result.refresh()
    assert result.return_value == [1]


def test_a_rolled_back_job_never_existed(rival: Rival) -> None:
    with undone():
        result = samples.plain.enqueue(1)
    with pytest.raises(compat.TaskResultDoesNotExist):
        result.refresh()
    assert rival.do(run_until_idle) == 0


def test_an_inner_rollback_takes_only_the_inner_job() -> None:
    with transaction.atomic():
        outer = samples.plain.enqueue("outer")
        with undone():
            samples.plain.enqueue("inner")
        last = samples.plain.enqueue("last")
    assert set(Job.objects.values_list("pk", flat=True)) == {outer.job_id, last.job_id}


def test_a_key_is_free_again_after_the_rollback() -> None:
    keyed = samples.plain.using(unique_key="once")
    with undone():
        keyed.enqueue()
    assert keyed.enqueue().created


def test_an_enqueue_outside_of_a_transaction_is_durable_when_it_returns(rival: Rival) -> None:
    result = samples.plain.enqueue()
    assert rival.do(lambda: Job.objects.filter(pk=result.job_id).exists())


def test_a_task_that_enqueues_and_fails_leaves_what_it_committed() -> None:
    result = samples.spawns.enqueue()
    assert run_until_idle() == 2
    result.refresh()
    assert result.status == "FAILED"
    assert Job.objects.filter(task=samples.plain.module_path, status="SUCCESS").count() == 1
