"""The grants of a role that only enqueues, as documented; and unsuitable settings of a server."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import run_checks
from django.db import connection
from django.db.utils import ProgrammingError

from jobqueue import enqueue_many, signals
from jobqueue.models import Job
from tests.pipelines import samples as pipelines
from tests.tasks_layer import samples

PAGE = (Path(__file__).parents[2] / "docs" / "databases.md").read_text()
GRANTS = re.search(r"## A role that only enqueues.*?```sql\n(.*?)```", PAGE, re.DOTALL)

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db(transaction=True), pytest.mark.session]


@pytest.fixture
def as_web() -> Iterator[None]:
    """Make this thread's connection act as a role that has only the grants of the page."""
    assert GRANTS
    name = f"web_{uuid.uuid4().hex[:12]}"
    with connection.cursor() as cursor:
        cursor.execute(
            f"CREATE ROLE {name}; GRANT USAGE ON SCHEMA public TO {name}; {GRANTS[1].replace('TO web', f'TO {name}')}; SET ROLE {name}"
        )
    yield
    with connection.cursor() as cursor:
        cursor.execute(f"RESET ROLE; DROP OWNED BY {name}; DROP ROLE {name}")


@pytest.mark.usefixtures("as_web")
def test_the_grants_of_the_page_are_enough_to_enqueue() -> None:
    first = samples.plain.using(unique_key="once", target="t", webhook_url="https://example.com/hook").enqueue(1)
    assert samples.plain.using(unique_key="once").enqueue(1).id == first.id
    assert samples.plain.using(run_after=timedelta(hours=1)).enqueue(1).job_status == "PENDING"
    assert len(enqueue_many(samples.plain, [((1,), {}), ((2,), {})])) == 2
    assert pipelines.publish.enqueue("x").status == "READY"
    for _ in range(8):  # the later ones by a plan that the server keeps
        samples.plain.enqueue(1)
    first.refresh()
    assert first.status == "READY"


@pytest.mark.usefixtures("as_web")
def test_the_grants_of_the_page_are_enough_with_a_receiver_of_events() -> None:
    def hear(**_: Any) -> None:
        """Do nothing."""

    signals.job_event.connect(hear)
    try:
        samples.plain.enqueue(1)
        enqueue_many(samples.plain, [((1,), {}), ((2,), {})])
    finally:
        signals.job_event.disconnect(hear)


@pytest.mark.usefixtures("as_web")
def test_such_a_role_changes_and_deletes_nothing() -> None:
    result = samples.plain.enqueue(1)
    with pytest.raises(ProgrammingError, match="permission denied"):
        Job.objects.filter(pk=result.job_id).update(message="x")
    with pytest.raises(ProgrammingError, match="permission denied"), connection.cursor() as cursor:
        cursor.execute("DELETE FROM jobqueue_job")


def test_arrays_without_nulls_are_named() -> None:
    def ids() -> list[str]:
        return [one.id for one in run_checks(databases=["default"]) if one.id == "jobqueue.W010"]

    assert ids() == []
    with connection.cursor() as cursor:
        cursor.execute("SET array_nulls = off")
        assert ids() == ["jobqueue.W010"]
        cursor.execute("RESET array_nulls")
