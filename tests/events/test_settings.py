"""The settings of the event log: their values and their effect."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from jobqueue import conf
from jobqueue.core import event_names as names


@pytest.mark.parametrize("values", [{"EVENT_LOG": "some"}, {"EVENT_LOG": True}, {"EVENT_DELETE_AFTER": "soon"}, {"EVENT_DELETE_AFTER": -1}])
def test_a_wrong_value_is_named_with_what_it_must_be(values: dict[str, Any]) -> None:
    [problem] = conf.problems(values)
    assert problem.id == "E002"
    assert next(iter(values)) in problem.message


@pytest.mark.parametrize(("value", "seconds"), [(None, 30 * 86_400.0), (0, 0.0), (timedelta(hours=1), 3600.0), ("never", None)])
def test_the_age_of_events_is_30_days_unless_another_is_said(settings: Any, value: Any, seconds: float | None) -> None:
    settings.JOBQUEUE = {"EVENT_DELETE_AFTER": value}
    assert conf.event_age() == seconds


def test_each_name_is_listed_and_each_ending_among_them() -> None:
    said = [value for key, value in vars(names).items() if key.isupper() and isinstance(value, str)]
    assert sorted(said) == sorted(names.NAMES)
    assert set(names.ENDINGS) < set(names.NAMES)
