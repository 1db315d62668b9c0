"""Which queues a worker serves: the rule of names, prefixes and exclusions, in Python, in SQL, and in what people see."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.management import CommandError, load_command_class

from jobqueue import conf
from jobqueue.core import queue_rules
from jobqueue.core.queue_rules import ALL, parse, parse_stored, problem
from jobqueue.db import claims
from jobqueue.exceptions import InvalidOption
from jobqueue.insight import queue_names
from jobqueue.management.commands import runworkers
from jobqueue.models import Job
from jobqueue.testing import run_until_idle
from jobqueue.worker.claiming.listener import Listener
from jobqueue.worker.wakeups import Signal, Wakeups
from tests import tasks
from tests.factories import JobFactory, WorkerFactory

NAMES = ["mail", "mail-", "mail-a", "mail-bulk", "mail-bulk-2", "Mail-a", "sms", "ma%l-x", "ma_l-x", "it's", "größe-1", "!odd", "a*b"]
RULES: dict[tuple[str, ...], set[str]] = {
    (): {*NAMES},
    ("*",): {*NAMES},
    ("*", "sms"): {*NAMES},
    ("mail",): {"mail"},
    ("mail", "sms"): {"mail", "sms"},
    ("mail", "!sms"): {"mail"},
    ("mail-*",): {"mail-", "mail-a", "mail-bulk", "mail-bulk-2"},
    ("mail-*", "!mail-bulk"): {"mail-", "mail-a", "mail-bulk-2"},
    ("!mail-bulk*", "mail-*", "sms"): {"mail-", "mail-a", "sms"},
    ("!mail-bulk",): {*NAMES} - {"mail-bulk"},
    ("*", "!mail-*", "!sms"): {*NAMES} - {"mail-", "mail-a", "mail-bulk", "mail-bulk-2", "sms"},
    ("ma%*", "ma_*"): {"ma%l-x", "ma_l-x"},
    ("größe*", "it'*"): {"größe-1", "it's"},
    ("!größe-1", "!it's"): {*NAMES} - {"größe-1", "it's"},
    ("none-*",): set(),
}


@pytest.mark.parametrize("items", RULES, ids=",".join)
def test_a_rule_matches_names_whatever_the_order_of_its_items(items: tuple[str, ...]) -> None:
    for order in (items, items[::-1]):
        assert {name for name in NAMES if parse(order).matches(name)} == RULES[items]
    assert problem(items) is None


@pytest.mark.django_db
@pytest.mark.parametrize("items", RULES, ids=",".join)
def test_the_database_matches_the_same_names(items: tuple[str, ...]) -> None:
    for name in NAMES:
        JobFactory(queue=name)
    served, database = parse(items), Job.objects.database
    assert {*Job.objects.current.served_by(served).values_list("queue", flat=True)} == RULES[items]
    assert {*claims.queued_queues(database, 100, served=served)} == RULES[items]
    condition, params = served.condition("queue")
    assert {row[0] for row in database.rows(f"SELECT queue FROM {database.table} WHERE TRUE{condition}", params)} == RULES[items]
    assert Job.objects.depth(served, 100) == len(RULES[items])


def test_exact_names_alone_need_no_query_of_the_existing_queues() -> None:
    without = [parse(items) for items in ((), ("*",), ("*", "mail"), ("mail", "sms"), ("mail", "!sms"))]
    assert [one.has_patterns for one in without] == [False] * 5
    assert [one.is_all for one in without] == [True, True, True, False, False]
    assert all(parse(items).has_patterns for items in (("mail-*",), ("mail", "sms-*"), ("!mail",), ("!mail-*",)))


@pytest.mark.parametrize(
    ("items", "text", "fix"),
    [
        ([""], "An item is empty.", "comma"),
        (["mail", " "], "An item is empty.", "comma"),
        (["!"], "'!' excludes nothing.", "!mail-bulk"),
        (["!*"], "'!*' excludes all queues.", "!mail-bulk"),
        (["!!mail"], "'!!mail' has more than one !", "!mail-bulk"),
        (["! mail"], "'! mail' has more than one ! or a space", "!mail-bulk"),
        (["mail-*-x"], "'mail-*-x' has * before its end.", "mail-*"),
        (["*-bulk"], "'*-bulk' has * before its end.", "mail-*"),
        (["!*-bulk"], "'!*-bulk' has * before its end.", "mail-*"),
        (["mail**"], "'mail**' has * before its end.", "mail-*"),
        (["m" * 201], "has 201 characters.", "200"),
        (["!" + "m" * 201 + "*"], "has 201 characters.", "200"),
        (["a\0b"], "has a character that no queue name has.", "NUL"),
        (["mail", "sms", "mail"], "'mail' is listed twice.", "once"),
        (["!mail-*", "!mail-*"], "'!mail-*' is listed twice.", "once"),
        (["mail", "!mail"], "'mail' is included, and excluded by '!mail'.", "one of the two"),
        (["!mail-*", "mail-bulk"], "'mail-bulk' is included, and excluded by '!mail-*'.", "one of the two"),
        (["mail-a*", "!mail-*"], "'mail-a*' is included, and excluded by '!mail-*'.", "one of the two"),
        (["mail-*", "!mail-*"], "'mail-*' is included, and excluded by '!mail-*'.", "one of the two"),
    ],
)
def test_wrong_items_are_refused_with_the_item_the_rule_and_the_fix(items: list[str], text: str, fix: str) -> None:
    found = problem(items)
    assert found is not None
    assert (text in found.text, fix in found.fix) == (True, True), found
    assert parse(tuple(items)) is not None, "what a row holds can be shown"
    if all(item.strip() for item in items):
        [told] = conf.problems({"QUEUES": items})
        assert (told.id, told.message, told.hint) == ("E002", f"QUEUES: {found.text}", found.fix)
    with pytest.raises(InvalidOption, match="queues is"):
        run_until_idle(items)


def given(*args: str) -> dict[str, Any]:
    parser = load_command_class("jobqueue", "runworkers").create_parser("manage.py", "runworkers")
    return runworkers._overrides(vars(parser.parse_args(args)))


def test_the_command_line_takes_the_items_as_they_are_given() -> None:
    assert given("--queues", " mail-*, !mail-bulk ,sms") == {"queues": ("mail-*", "!mail-bulk", "sms")}
    assert runworkers._settings(given("--queues", "!mail-bulk")).queues == ("!mail-bulk",)
    assert (given("--queues", ""), given()) == ({"queues": ()}, {})


@pytest.mark.parametrize("text", [",", " ", "mail,,sms", "mail,", "!", "a*b", "mail,!mail", "mail,mail"])
def test_the_command_line_refuses_what_no_worker_can_serve(text: str) -> None:
    with pytest.raises(CommandError) as caught:
        given("--queues", text)
    wrong = queue_rules.problem(tuple(item.strip() for item in text.split(",")))
    assert wrong is not None
    assert str(caught.value) == f"--queues is {text!r}: {wrong.text} {wrong.fix}"


@pytest.mark.parametrize(
    ("stored", "serves_mail"),
    [([], True), (None, True), ({"odd": 1}, True), (["mail", 7], True), (["sms", None], False), ([7], False), (["!", "ma*"], True)],
)
def test_the_items_that_a_worker_has_written_are_read_whatever_raw_sql_made_of_them(stored: Any, serves_mail: bool) -> None:
    rule = parse_stored(stored)
    assert (rule is not None and rule.matches("mail")) is serves_mail


def test_a_notification_wakes_only_workers_that_serve_its_queue() -> None:
    woken: list[str | None] = []
    wakeups = Wakeups()
    wakeups.subscribe(Signal.WORK, woken.append)
    listener = Listener("worker-1", ["mail-*", "!mail-bulk"], wakeups, lambda *_: None)
    for payload in ("queue:mail-a", "queue:mail-bulk", "queue:sms", 'tenant:["acme", "mail-b"]', 'tenant:["globex", "mail-bulk"]'):
        listener._pass_on(payload)
    assert woken == ["", "acme"]


@pytest.mark.django_db
def test_a_name_is_known_if_an_item_lists_it_and_not_by_a_prefix(settings: Any) -> None:
    assert not queue_names.is_known("mail-a")
    for items, known in ((["mail-*"], False), (["*"], False), (["!sms"], False), (["!mail-a"], True), (["!mail-*"], False)):
        worker = WorkerFactory(queues=items)
        assert queue_names.is_known("mail-a") is known, items
        worker.delete()
    settings.JOBQUEUE = {"QUEUES": ["mail-a", "sms-*"]}
    assert queue_names.is_known("mail-a")


@pytest.mark.django_db
def test_run_until_idle_takes_the_same_items() -> None:
    for name in ("mail-a", "mail-bulk", "sms"):
        tasks.add.using(queue_name=name).enqueue(1, 2)
    assert run_until_idle(["none-*"]) == 0
    assert run_until_idle(["mail-*", "!mail-bulk"]) == 1
    assert {*Job.objects.filter(status="QUEUED").values_list("queue", flat=True)} == {"mail-bulk", "sms"}
    assert run_until_idle(["!sms"]) == 1
    assert run_until_idle() == 1


def test_the_condition_of_exact_names_is_what_it_was() -> None:
    assert ALL.condition("queue") == ("", [])
    assert parse(("mail", "sms")).condition("j.queue") == (" AND j.queue IN (%s, %s)", ["mail", "sms"])
