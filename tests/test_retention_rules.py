"""The settings for how long ended jobs are kept, and how they are read."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from jobqueue import checks, conf
from jobqueue.core.retention_rules import MAX_SECONDS, OUTCOMES, after

HOOK = "tests.test_retention_rules.hook"
no_callable = 3


def hook(job: Any) -> None:
    """A callable."""


def test_the_defaults_apply_without_options() -> None:
    stale, delete = conf.retention()
    assert [stale.seconds("mail", outcome) for outcome in OUTCOMES] == [days * 86_400 for days in (7, 30, 7)]
    assert [delete.seconds("mail", outcome) for outcome in OUTCOMES] == [days * 86_400 for days in (30, 90, 30)]
    assert conf.retention_hooks() == (None, None)


@pytest.mark.parametrize("value", [60, 60.0, timedelta(minutes=1)])
def test_one_time_holds_for_every_outcome(settings: Any, value: Any) -> None:
    settings.JOBQUEUE = {"DELETE_AFTER": value}
    stale, delete = conf.retention()
    assert {outcome: delete.seconds("mail", outcome) for outcome in OUTCOMES} == dict.fromkeys(OUTCOMES, 60.0)
    assert delete.ages() == [60.0]
    assert stale.seconds("mail", "SUCCESS") == 7 * 86_400


def test_an_empty_dict_is_never(settings: Any) -> None:
    settings.JOBQUEUE = {"DELETE_AFTER": {}, "STALE_AFTER": {}}
    assert not any(conf.retention())


def test_zero_is_a_time_and_none_is_never(settings: Any) -> None:
    settings.JOBQUEUE = {"DELETE_AFTER": 0, "STALE_AFTER": {"SUCCESS": None}}
    stale, delete = conf.retention()
    assert delete.ages() == [0.0]
    assert not stale


def test_an_outcome_that_is_not_named_is_kept(settings: Any) -> None:
    settings.JOBQUEUE = {"DELETE_AFTER": {"SUCCESS": 1, "CANCELED": timedelta(days=1)}}
    _, delete = conf.retention()
    assert [delete.seconds("mail", outcome) for outcome in ("SUCCESS", "CANCELED", "ERROR")] == [1.0, 86400.0, None]
    assert delete.ages() == [1.0, 86400.0]


def test_a_queue_says_it_anew_for_the_outcomes_that_it_names(settings: Any) -> None:
    settings.JOBQUEUE = {
        "STALE_AFTER": 5,
        "DELETE_AFTER": 100,
        "QUEUE_RETENTION": {"mail": {"DELETE_AFTER": {"SUCCESS": 1, "ERROR": None}}, "audit": {"DELETE_AFTER": None}},
    }
    stale, delete = conf.retention()
    assert [delete.seconds("mail", outcome) for outcome in ("SUCCESS", "CANCELED", "ERROR")] == [1.0, 100.0, None]
    assert [delete.seconds("audit", outcome) for outcome in OUTCOMES] == [None, None, None]
    assert delete.seconds("else", "ERROR") == 100.0
    assert stale.seconds("mail", "SUCCESS") == stale.seconds("audit", "ERROR") == 5.0


def test_rules_can_be_narrowed(settings: Any) -> None:
    settings.JOBQUEUE = {"DELETE_AFTER": 100, "QUEUE_RETENTION": {"mail": {"DELETE_AFTER": 1}}}
    _, delete = conf.retention()
    mail = delete.only([], ["mail"])
    assert (mail.seconds("mail", "ERROR"), mail.seconds("else", "ERROR")) == (1.0, None)
    errors = delete.only(["ERROR"], [])
    assert [errors.seconds(queue, "ERROR") for queue in ("mail", "else")] == [1.0, 100.0]
    assert [errors.seconds(queue, "SUCCESS") for queue in ("mail", "else")] == [None, None]
    both = after(OUTCOMES, 7).only(["ERROR"], ["mail"])
    assert both.ages() == [7.0]
    assert (both.seconds("mail", "ERROR"), both.seconds("mail", "SUCCESS"), both.seconds("else", "ERROR")) == (7.0, None, None)
    assert delete.only([], []).ages() == [1.0, 100.0]


@pytest.mark.parametrize("name", ["STALE_AFTER", "DELETE_AFTER"])
@pytest.mark.parametrize(
    "value",
    [
        "60",
        -1,
        True,
        float("nan"),
        float("inf"),
        MAX_SECONDS + 1,
        timedelta(seconds=-1),
        [60],
        {"RUNNING": 60},
        {"ERROR": "60"},
        {1: 60},
    ],
    ids=repr,
)
def test_an_invalid_time_is_refused_with_the_rule(name: str, value: Any) -> None:
    for given in ({name: value}, {"QUEUE_RETENTION": {"mail": {name: value}}}):
        (problem,) = conf.problems(given)
        assert problem.id == "E002"
        assert problem.message.startswith(f"{next(iter(given))} is ")
        assert "STALE_AFTER" in problem.hint or "a number of seconds" in problem.hint


@pytest.mark.parametrize("value", [3, ["mail"], {"mail": 3}, {"": {}}, {3: {}}, {"mail": {"DELETE": 3}}], ids=repr)
def test_an_invalid_name_of_a_queue_is_refused(value: Any) -> None:
    (problem,) = conf.problems({"QUEUE_RETENTION": value})
    assert problem.message.startswith("QUEUE_RETENTION is ")


@pytest.mark.parametrize("name", ["ON_STALE", "ON_DELETE"])
def test_a_hook_is_a_callable_or_the_path_of_one(settings: Any, name: str) -> None:
    place = ["ON_STALE", "ON_DELETE"].index(name)
    for value in (hook, HOOK):
        settings.JOBQUEUE = {name: value}
        found: Any = conf.retention_hooks()[place]
        assert found.__name__ == "hook"
        assert checks.check_hooks() == []
    assert [problem.id for problem in conf.problems({name: 3})] == ["E002"]


@pytest.mark.parametrize("name", ["ON_STALE", "ON_DELETE"])
@pytest.mark.parametrize(
    ("path", "text"), [("no.such.thing", "cannot be imported: No module"), ("tests.test_retention_rules.no_callable", "cannot be called")]
)
def test_a_hook_that_is_not_there_is_reported_by_the_checks(settings: Any, name: str, path: str, text: str) -> None:
    settings.JOBQUEUE = {name: path}
    (message,) = checks.check_hooks()
    assert message.id == "jobqueue.E009"
    assert message.msg.startswith(f"{name} is '{path}', which ")
    assert text in message.msg
