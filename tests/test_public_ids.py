"""The public id of a job: it identifies the job, cannot be guessed, and is accepted wherever a job is named."""

import itertools
from typing import Any
from uuid import UUID

import pytest
from asgiref.sync import async_to_sync
from django.db import connection
from django.test import override_settings

from jobqueue import cancel, compat, enqueue_many, pause, public_ids, resume, run_now, run_schedule_now, why_waiting
from jobqueue.admin.listing import as_id
from jobqueue.exceptions import InvalidOption
from jobqueue.models import Job
from jobqueue.public_ids import job_id_of, public_id
from jobqueue.testing import run_until_idle
from tests.factories import JobFactory, ScheduleFactory
from tests.tasks_layer import samples

NUMBERS = (1, 2, 17, 10**6, 2**40, 2**62, 2**63 - 1, -1, -(2**63))
DATABASE = {"BACKEND": "jobqueue.backends.DatabaseBackend", "QUEUES": []}


@pytest.mark.parametrize("number", NUMBERS)
def test_a_public_id_is_a_uuid_that_leads_back_to_the_number(number: int) -> None:
    text = public_id(number)
    assert (UUID(text).version, str(UUID(text)), job_id_of(text)) == (8, text, number)


def test_public_ids_of_neighbors_have_nothing_in_common() -> None:
    texts = [public_id(number) for number in range(1, 2001)]
    assert len(set(texts)) == len(texts)
    assert texts != sorted(texts)
    differing = [(UUID(one).int ^ UUID(other).int).bit_count() for one, other in itertools.pairwise(texts)]
    assert min(differing) > 25, "of the 122 free bits, about half differ"


def test_a_text_that_was_changed_is_no_public_id() -> None:
    text = public_id(17)
    changed = {f"{text[:place]}{'0' if text[place] != '0' else '1'}{text[place + 1 :]}" for place in range(len(text))}
    shapes = {text.upper(), text.replace("-", ""), f" {text}", f"{text}\n", f"{{{text}}}", "", "17", "0" * 36}
    assert [one for one in (changed | shapes) - {text} if job_id_of(one) is not None] == []


def test_a_key_that_was_replaced_still_reads_its_ids() -> None:
    with override_settings(SECRET_KEY="the old one"):
        old = public_id(17)
    assert job_id_of(old) is None
    with override_settings(SECRET_KEY="the new one", SECRET_KEY_FALLBACKS=["other", "the old one"]):
        assert job_id_of(old) == 17
        assert public_id(17) != old


def test_services_with_keys_in_common_give_the_same_ids() -> None:
    with override_settings(SECRET_KEY="of one service", JOBQUEUE={"PUBLIC_ID_KEYS": ["shared"]}):
        text = public_id(17)
    with override_settings(SECRET_KEY="of the other", JOBQUEUE={"PUBLIC_ID_KEYS": ["newer", "shared"]}):
        assert job_id_of(text) == 17


def test_an_invalid_number_has_no_public_id() -> None:
    junk: Any = ["x", b"x", None, 1.5]
    assert {public_id(one) for one in junk} == {""}


@pytest.mark.long
@pytest.mark.django_db
def test_every_way_to_make_a_job_gives_its_result_the_public_id() -> None:
    first = samples.plain.enqueue(1)
    many = enqueue_many(samples.plain, [((2,), {}), ((3,), {})])
    keyed = samples.plain.using(unique_key="k")
    made, found = keyed.enqueue(4), keyed.enqueue(4)
    assert (found.id, found.created) == (made.id, False)
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO jobqueue_job (task) VALUES (%s)", [samples.plain.module_path])
    for job in Job.objects.all():
        assert samples.plain.get_result(public_id(job.pk)).job_id == job.pk
    assert {one.id for one in (first, *many, made)} < {public_id(job.pk) for job in Job.objects.all()}
    assert run_until_idle() == 5
    first.refresh()
    assert (first.status, first.return_value, public_ids.number_of(first.id)) == ("SUCCESSFUL", [1], first.job_id)


@pytest.mark.django_db
def test_a_number_can_be_guessed_and_has_no_result() -> None:
    job = JobFactory()
    backend = samples.plain.get_backend()
    for guess in (str(job.pk), job.pk):
        with pytest.raises(compat.TaskResultDoesNotExist):
            backend.get_result(guess)
        with pytest.raises(compat.TaskResultDoesNotExist):
            async_to_sync(backend.aget_result)(guess)


@pytest.mark.django_db
@override_settings(TASKS={"default": DATABASE, "mail": DATABASE})
def test_only_the_backend_that_made_a_job_has_its_result() -> None:
    backends = compat.task_backends()
    mine = samples.plain.using(backend="mail").enqueue(1)
    [bulk] = enqueue_many(samples.plain.using(backend="mail"), [((2,), {})])
    assert set(Job.objects.values_list("backend", flat=True)) == {"mail"}
    for result in (mine, bulk):
        found = backends["mail"].get_result(result.id)
        assert (found.backend, found.task.backend) == ("mail", "mail")
        assert async_to_sync(backends["mail"].aget_result)(result.id).id == result.id
        for alias in ("default",):
            with pytest.raises(compat.TaskResultDoesNotExist):
                backends[alias].get_result(result.id)
            with pytest.raises(compat.TaskResultDoesNotExist):
                async_to_sync(backends[alias].aget_result)(result.id)
    run_until_idle()
    mine.refresh()
    assert (mine.status, mine.backend) == ("SUCCESSFUL", "mail")


@pytest.mark.django_db
@override_settings(TASKS={"default": DATABASE, "mail": DATABASE})
def test_a_live_job_of_another_backend_is_returned_as_that_backends() -> None:
    first = samples.plain.using(backend="mail", unique_key="k").enqueue(1)
    second = samples.plain.using(unique_key="k").enqueue(1)
    assert (second.id, second.created, second.backend) == (first.id, False, "mail")
    second.refresh()


@pytest.mark.django_db
def test_a_schedule_makes_jobs_and_knows_their_numbers() -> None:
    ScheduleFactory(name="s", task=samples.plain.module_path, args=[1])
    number = run_schedule_now("s")
    assert samples.plain.get_result(public_id(number)).job_id == number


VERBS = [cancel, pause, resume, run_now]


@pytest.mark.django_db
@pytest.mark.parametrize("verb", VERBS)
def test_the_verbs_take_a_job_and_the_result_of_its_enqueue(verb: Any) -> None:
    result = samples.plain.enqueue(1)
    for given in (result, Job.objects.get(pk=result.job_id), str(result.job_id)):
        assert verb(given).job_id == result.job_id


@pytest.mark.django_db
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("wrong", [None, True, 1.5, "seven", "", "#1", "9" * 30, [1], b"1"], ids=repr)
def test_the_verbs_refuse_what_names_no_job(verb: Any, wrong: Any) -> None:
    JobFactory(id=1)  # which the database would find for True and for 1.5
    with pytest.raises(InvalidOption, match="it must be a job, its number or public id, or the result of its enqueue"):
        verb(wrong)
    assert Job.objects.get().status == "QUEUED"


@pytest.mark.django_db
def test_the_verbs_and_the_admin_take_a_public_id() -> None:
    job = JobFactory()
    text = public_id(job.pk)
    assert (as_id(text), as_id("#17"), as_id(text[:-1])) == (job.pk, 17, None)
    assert why_waiting(text) == why_waiting(UUID(text))
    assert why_waiting(text) is not None
    assert cancel(UUID(text)).status == "CANCELED"
    assert not resume(text)
