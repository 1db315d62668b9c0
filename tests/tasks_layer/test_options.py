"""Options of a task: their names, their rules, and errors that name the value, the rule and the fix."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jobqueue import InvalidOption, compat, exponential, task
from jobqueue.tasks.task import DECLARED_ONLY, JOB_OPTIONS, PLAIN_OPTIONS
from tests.tasks_layer import samples


class Mute:
    """A value that cannot be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


WRONG = [
    ("priority", True, "whole number from -100 to 100"),
    ("priority", "5", "whole number from -100 to 100"),
    ("priority", 5.0, "whole number from -100 to 100"),
    ("priority", [], "whole number from -100 to 100"),
    ("priority", -101, "whole number from -100 to 100"),
    ("priority", Mute(), "whole number from -100 to 100"),
    ("backend", (), "must be text"),
    ("backend", 5, "must be text"),
    ("takes_context", "no", "True or False"),
    ("transactional", Mute(), "True or False"),
    ("recovery", Mute(), "requeue, hold"),
    ("max_attempts", Mute(), "from 1"),
    ("max_attempts", 0, "from 1"),
    ("max_attempts", -1, "from 1"),
    ("max_attempts", True, "whole number"),
    ("max_attempts", 2.0, "whole number"),
    ("max_attempts", "3", "whole number"),
    ("max_attempts", 1_000_001, "1000000"),
    ("backoff", 5, "fixed(...)"),
    ("backoff", "fixed", "callable"),
    ("retry_on", OSError, "tuple of exception classes"),
    ("retry_on", ("OSError",), "tuple of exception classes"),
    ("retry_on", (int,), "tuple of exception classes"),
    ("recovery", "rerun", "requeue, hold"),
    ("recovery", 1, "requeue, hold"),
    ("unique_key", "", "1 to 200"),
    ("unique_key", "x" * 201, "1 to 200"),
    ("unique_key", 7, "text"),
    ("unique_key", "a\0b", "NUL"),
    ("unique_key", "\ud800", "surrogate"),
    ("timeout", 0, "above 0"),
    ("timeout", -1, "above 0"),
    ("timeout", timedelta(), "above 0"),
    ("timeout", timedelta(days=-1), "above 0"),
    ("timeout", True, "number of seconds"),
    ("timeout", "5", "timedelta"),
    ("timeout", float("nan"), "above 0"),
    ("timeout", float("inf"), "366 days"),
    ("timeout", 10**400, "366 days"),
    ("expires", datetime.fromisoformat("9999-12-31"), "between 1970-01-01 and 9000-01-01"),
    ("expires", datetime(1, 1, 1, tzinfo=UTC), "between 1970-01-01"),
    ("expires", datetime(1960, 1, 1, tzinfo=UTC), "between 1970-01-01"),
    ("expires", datetime(9999, 12, 31, tzinfo=UTC), "between 1970-01-01"),
    ("metadata", [1], "mapping"),
    ("metadata", {1: 2}, "key"),
    ("metadata", {"a": {1, 2}}, "set"),
    ("metadata", {"a": float("nan")}, "nan"),
    ("webhook_url", "", "1 to 2000"),
    ("webhook_url", 7, "1 to 2000"),
    ("webhook_url", "https://example.com/" + "x" * 1981, "1 to 2000"),
    ("webhook_url", "ftp://example.com/hook", "https://"),
    ("webhook_url", "example.com/hook", "https://"),
    ("webhook_url", "javascript:alert(1)", "https://"),
    ("webhook_url", "https:///hook", "name a host"),
    ("webhook_url", "https://example.com:99999/", "valid host and port"),
    ("webhook_url", "https://[::1/", "valid host and port"),
    ("webhook_url", "https://example.com/a b", "no spaces"),
    ("webhook_url", "https://example.com/\r\nX: y", "control characters"),
    ("webhook_url", "https://example.com/\0", "control characters"),
    ("webhook_url", "https://example.com/\ud800", "control characters"),
    ("webhook_url", "https://user@example.com/", "no user name or password"),
]


@pytest.mark.parametrize(("name", "value", "rule"), WRONG)
def test_a_wrong_value_is_refused_by_the_decorator_with_its_rule(name: str, value: Any, rule: str) -> None:
    with pytest.raises((ValueError, TypeError)) as caught:
        task(**{name: value})(samples.undeclared)
    assert name in str(caught.value)
    assert rule in str(caught.value)


@pytest.mark.parametrize(("name", "value", "rule"), [row for row in WRONG if row[0] not in (*DECLARED_ONLY, "takes_context")])
def test_a_wrong_value_is_refused_by_using_with_its_rule(name: str, value: Any, rule: str) -> None:
    with pytest.raises((ValueError, TypeError), match=name) as caught:
        samples.plain.using(**{name: value})
    assert rule in str(caught.value)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("max_attempt", "max_attempts"),
        ("uniquekey", "unique_key"),
        ("Recovery", "recovery"),
        ("prioritiy", "priority"),
        ("queue", "queue_name"),
    ],
)
@pytest.mark.parametrize("give", [lambda given: task(**given), lambda given: samples.plain.using(**given)])
def test_a_misspelt_name_is_refused_with_the_name_that_was_meant(give: Callable[[Any], Any], given: str, meant: str) -> None:
    with pytest.raises(InvalidOption, match=f"Unknown option '{given}': did you mean '{meant}'?"):
        give({given: 1})


def test_a_name_like_no_other_is_refused_with_all_names() -> None:
    with pytest.raises(InvalidOption) as caught:
        samples.plain.using(zzz=1)
    assert "'zzz'" in str(caught.value)
    assert all(name in str(caught.value) for name in (*PLAIN_OPTIONS, *JOB_OPTIONS))


def test_a_time_to_run_cannot_be_declared() -> None:
    with pytest.raises(InvalidOption, match="run_after"):
        task(run_after=None)


@pytest.mark.parametrize("queue_name", ["", "x" * 201, "a\0b", "\ud800", 7])
def test_a_queue_name_that_the_table_cannot_hold_is_refused(queue_name: Any) -> None:
    with pytest.raises(InvalidOption, match="queue_name"):
        samples.plain.using(queue_name=queue_name)


@pytest.mark.parametrize("name", DECLARED_ONLY)
def test_options_that_are_read_from_the_code_cannot_be_set_for_one_job(name: str) -> None:
    values = {"backoff": exponential(), "retry_on": (OSError,), "transactional": True, "phases": (print,), "secret": ("code",)}
    value = {**values, "schedulable": False}[name]
    with pytest.raises(InvalidOption, match=rf"put it on @task\({name}="):
        samples.plain.using(**{name: value})


def test_none_leaves_an_option_as_it_was() -> None:
    assert samples.full.using(**dict.fromkeys((*PLAIN_OPTIONS, *JOB_OPTIONS))) == samples.full


def test_using_changes_the_copy_alone() -> None:
    changed = samples.full.using(max_attempts=7, unique_key="two", recovery="requeue", metadata={"who": "you"}, priority=-5)
    assert (changed.max_attempts, changed.unique_key, changed.recovery, changed.metadata, changed.priority) == (
        7,
        "two",
        "requeue",
        {"who": "you"},
        -5,
    )
    assert (samples.full.max_attempts, samples.full.unique_key, samples.full.priority) == (3, "one", 5)
    assert changed.retry_on == (OSError,)


def test_using_can_be_chained() -> None:
    chained = samples.plain.using(priority=1).using(max_attempts=2).using(queue_name="reports")
    assert (chained.priority, chained.max_attempts, chained.queue_name) == (1, 2, "reports")


def test_a_list_of_exceptions_becomes_a_tuple() -> None:
    declared = task(retry_on=[OSError, ValueError])(samples.undeclared)  # type: ignore[arg-type]
    assert declared.retry_on == (OSError, ValueError)


def test_a_task_with_every_option_can_be_hashed_and_compared() -> None:
    assert hash(samples.full) == hash(samples.full.using())
    assert samples.full == samples.full.using()
    assert samples.full != samples.full.using(metadata={"who": "you"})
    assert {samples.full: 1}[samples.full.using()] == 1


def test_a_task_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        samples.full.max_attempts = 5  # type: ignore[misc]


def test_a_path_that_the_table_cannot_hold_is_refused_at_the_declaration() -> None:
    def long() -> None: ...

    long.__qualname__ = "x" * 500
    with pytest.raises(InvalidOption, match="it must have at most 450 characters"):
        task(long)


def test_the_error_of_a_url_with_a_password_does_not_show_it() -> None:
    with pytest.raises(InvalidOption, match="no user name or password") as caught:
        samples.plain.using(webhook_url=f"https://user:{'hunter2' * 20}@example.com/?token=hunter3")
    assert "hunter" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8000/", "https://example.com", "https://bücher.example/hook?queue=a", "https://example.com/" + "x" * 1980]
)
def test_an_address_of_a_receiver_is_taken_as_it_is(url: str) -> None:
    assert samples.plain.using(webhook_url=url).webhook_url == url


@pytest.mark.parametrize("priority", [True, "5", 5.0])
def test_a_plain_task_with_a_wrong_priority_is_refused_with_its_rule(priority: Any) -> None:
    with pytest.raises(compat.InvalidTask, match=r"priority is .*; it must be a whole number from -100 to 100"):
        compat.Task(func=samples.undeclared, priority=priority, backend="default", queue_name="default", run_after=None)
