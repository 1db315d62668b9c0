"""How a project declares its duties, and what is refused."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from jobqueue import duty
from jobqueue.duties import registry
from jobqueue.duties.base import FunctionDuty
from jobqueue.exceptions import InvalidOption


@pytest.fixture(autouse=True)
def own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_factories", {})
    monkeypatch.setattr(registry, "_places", {})


def sweep() -> int:
    return 7


def test_a_function_becomes_a_duty_and_stays_a_function() -> None:
    declared = duty(name="shop.sweep", interval=timedelta(minutes=2), strategy="everyone", rotate_after_seconds=60)(sweep)
    assert declared() == 7
    made: Any = registry.discover()["shop.sweep"]()
    assert isinstance(made, FunctionDuty)
    assert (made.name, made.interval_seconds, made.strategy, made.rotate_after_seconds) == ("shop.sweep", 120.0, "everyone", 60.0)
    assert made.function is sweep


def test_the_same_declaration_may_come_twice_but_a_name_is_one_functions_alone() -> None:
    duty(name="sweep", interval=1)(sweep)
    duty(name="sweep", interval=1)(sweep)
    with pytest.raises(InvalidOption, match=r"Two duties are named 'sweep'.*test_registry.sweep and"):
        duty(name="sweep", interval=1)(lambda: None)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"interval": 0}, "interval is 0 s; it must be at least 0.05 s"),
        ({"interval": -1}, "interval is -1"),
        ({"interval": "soon"}, "interval is a str"),
        ({"interval": float("nan")}, "interval is nan"),
        ({"name": ""}, "name is ''"),
        ({"name": " x"}, "without spaces around"),
        ({"name": "x" * 201}, "1 to 200 characters"),
        ({"name": 7}, "name is 7"),
        ({"strategy": "leader"}, 'strategy is \'leader\'; it must be "lease" or "everyone"'),
        ({"name": "promote_due_jobs"}, "that of a duty of jobqueue; choose another one, such as 'shop.promote_due_jobs'"),
        ({"rotate_after_seconds": 5}, "rotate_after_seconds is 5; it must be at least DUTY_LEASE_SECONDS, 10"),
        ({"rotate_after_seconds": -3}, "rotate_after_seconds is -3"),
    ],
)
def test_a_contradictory_rule_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        duty(**{"name": "sweep", "interval": 1, **options})
    assert text in str(caught.value)


async def coroutine() -> None: ...


@pytest.mark.parametrize(
    ("function", "text"), [(coroutine, "not a coroutine"), (lambda context: None, "requires context"), (7, "must be a plain function")]
)
def test_a_value_that_cannot_be_called_is_refused(function: Any, text: str) -> None:
    with pytest.raises(InvalidOption, match=text):
        duty(name="sweep", interval=1)(function)
    assert registry.discover() == {}


def test_duties_of_installed_apps_are_found(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, "tests.faults"]
    monkeypatch.setenv("FAULTS_TERM_LOG", "0")
    monkeypatch.delitem(sys.modules, "tests.faults.duties", raising=False)
    assert list(registry.discover()) == ["term_log"]
