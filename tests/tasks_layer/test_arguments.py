"""Arguments that JSON would change are refused, and the caller's transaction stays usable."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.db import transaction

from jobqueue import InvalidArguments, JobQueueError, enqueue_job, enqueue_many
from jobqueue.models import Job
from jobqueue.testing import run_until_idle
from tests.tasks_layer import samples

pytestmark = pytest.mark.django_db


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def circular() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


BAD: dict[str, tuple[Any, type[Exception], str]] = {
    "nan": (float("nan"), ValueError, "nan"),
    "inf": (float("inf"), ValueError, "inf"),
    "minus inf": ([{"a": float("-inf")}], ValueError, "inf"),
    "bytes": (b"abc", TypeError, "bytes"),
    "datetime": (datetime(2030, 1, 1), TypeError, "isoformat"),  # noqa: DTZ001
    "number as key": ({1: 2}, TypeError, "key of type int"),
    "None as key": ({None: 2}, TypeError, "key of type NoneType"),
    "NUL": ("a\0b", ValueError, "NUL"),
    "NUL in a key": ({"a\0b": 1}, ValueError, "NUL"),
    "lone surrogate": ("\ud800", ValueError, "surrogate"),
    "deep nesting": (nested(500), ValueError, "nested deeper"),
    "deeper nesting than the interpreter": (nested(100_000), ValueError, "nested deeper"),
    "itself": (circular(), ValueError, "contains itself"),
    "5 MB": ("x" * 5_000_000, ValueError, "limit is 1,000,000"),
    "object": (object(), TypeError, "object"),
    "set": ({1}, TypeError, "set"),
}
ROUTES: dict[str, Callable[[Any], Any]] = {
    "by position": samples.plain.enqueue,
    "by name": lambda value: samples.plain.enqueue(value=value),
    "in bulk": lambda value: enqueue_many(samples.plain, [((1,), {}), ((value,), {})]),
    "by path": lambda value: enqueue_job("tests.tasks_layer.samples.plain", value),
    "by path and name": lambda value: enqueue_job("tests.tasks_layer.samples.plain", kwargs={"value": value}),
    "on the immediate backend": lambda value: samples.plain.using(backend="immediate").enqueue(value),
    "on the dummy backend": lambda value: samples.plain.using(backend="dummy").enqueue(value),
}


@pytest.mark.parametrize("route", ROUTES.values(), ids=ROUTES.keys())
@pytest.mark.parametrize(("value", "kind", "text"), BAD.values(), ids=BAD.keys())
def test_a_bad_argument_is_refused_with_a_clear_error(route: Callable[[Any], Any], value: Any, kind: type[Exception], text: str) -> None:
    with transaction.atomic():
        with pytest.raises(kind) as caught:
            route(value)
        assert text in str(caught.value)
        assert "cannot be enqueued" in str(caught.value)
        assert isinstance(caught.value, InvalidArguments)
        assert isinstance(caught.value, JobQueueError)
        assert len(str(caught.value)) < 1000
        good = samples.plain.enqueue("after")
    assert [job.pk for job in Job.objects.all()] == [good.job_id]


@pytest.mark.long
def test_json_values_arrive_unchanged() -> None:
    value = ["ü☃𝄞", {"a": [None, True, 1.5, -(2**70), 1e300]}, "\t\n\\\"'", "x" * 500_000]
    result = samples.plain.enqueue(value)
    assert run_until_idle() == 1
    result.refresh()
    assert result.return_value == [value]
