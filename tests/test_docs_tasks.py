"""The page about tasks says what the code says."""

import dataclasses
import inspect
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import jobqueue
from jobqueue import Retry, TaskContext, testing
from jobqueue.core import backoff, states
from jobqueue.tasks import results
from jobqueue.tasks.task import DECLARED_ONLY, DEFAULTS, JOB_OPTIONS, PLAIN_OPTIONS, JobTask
from jobqueue.testing import run_until_idle
from jobqueue.testing.conformance.base import Settings
from tests.tasks_layer import samples

PAGE = (Path(__file__).parent.parent / "docs" / "tasks.md").read_text()
SECTIONS = dict(zip(*[iter(re.split(r"^##+ (.+)$", PAGE, flags=re.MULTILINE)[1:])] * 2, strict=True))
OPTIONS = {
    row[0]: row[1:]
    for row in re.findall(r"^\| `([a-z_]+)` \| `(.+?)` \| (yes|no) \| (yes|no) \| (.+?) \|$", SECTIONS["Options"], re.MULTILINE)
}


def test_the_table_has_every_option_and_no_other() -> None:
    assert set(OPTIONS) == {*PLAIN_OPTIONS, "takes_context", *JOB_OPTIONS}
    assert [name for name in OPTIONS if name in JOB_OPTIONS] == list(JOB_OPTIONS)
    assert set(OPTIONS) == {field.name for field in dataclasses.fields(JobTask)} - {"func"}


@pytest.mark.parametrize("name", OPTIONS)
def test_the_default_is_the_codes(name: str) -> None:
    fields = {field.name: field.default for field in dataclasses.fields(JobTask)}
    expected = {**fields, **DEFAULTS, "run_after": None}[name]
    assert eval(OPTIONS[name][0], {"exponential": backoff.exponential}) == expected  # noqa: S307 - a page of this project


@pytest.mark.parametrize("name", OPTIONS)
def test_the_decorator_and_using_take_what_the_table_says(name: str) -> None:
    _, by_decorator, by_using, _ = OPTIONS[name]
    assert accepted(lambda: jobqueue.task(**{name: None})) == (by_decorator == "yes")
    taken = name in (*PLAIN_OPTIONS, *JOB_OPTIONS) and name not in DECLARED_ONLY
    assert taken == (by_using == "yes")
    value: Any = {
        "backoff": backoff.fixed(1),
        "retry_on": (OSError,),
        "takes_context": True,
        "transactional": True,
        "phases": (print,),
        "secret": ("code",),
        "schedulable": False,
    }.get(name)
    assert accepted(lambda: samples.plain.using(**{name: value})) == taken


def accepted(give: Any) -> bool:
    try:
        give()
    except jobqueue.InvalidOption:
        return False
    return True


def test_the_table_of_results_has_every_status() -> None:
    rows = re.findall(r"^\| ([A-Z, ]+) \| ([A-Z]+)(?:,.*)? \|$", SECTIONS["Results"], re.MULTILINE)
    table = {job: result for jobs, result in rows for job in jobs.split(", ")}
    assert table == {status: str(results.status_of(status)) for status in states.Status.values}


def test_every_word_of_the_context_exists_and_none_is_left_out() -> None:
    rows = re.findall(r"^\| (`.+?`) \|", SECTIONS["Context"], re.MULTILINE)
    named = {re.match(r"[a-z_]+", word).group() for row in rows for word in re.findall(r"`(.+?)`", row) if word != "context."}  # type: ignore[union-attr]
    assert named == {name for name in vars(TaskContext) if not name.startswith("_")}


def test_the_backoffs_on_the_page_work() -> None:
    for text in re.findall(r"^\| `((?:fixed|linear|exponential)\(.+?\))` \|", SECTIONS["Retries"], re.MULTILINE):
        policy = eval(text, vars(backoff).copy())  # noqa: S307 - a page of this project
        assert policy.delay(1, lambda: 0.0) > 0


def test_no_delay_is_longer_than_the_page_says() -> None:
    days = int(re.findall(r"No delay is longer than (\d+) days", SECTIONS["Retries"])[0])
    assert Retry(delay=timedelta.max).delay_seconds == timedelta(days=days).total_seconds()
    assert backoff.delay_seconds(lambda *_: timedelta.max, None, 1) == timedelta(days=days).total_seconds()


def test_the_signature_of_run_until_idle_is_the_codes() -> None:
    shown = re.search(r"run_until_idle\((.*?)\)", SECTIONS["Test your project"].replace("=()", "=<>"))
    assert shown is not None
    parameters = inspect.signature(run_until_idle).parameters.values()
    assert shown.group(1).replace("<>", "()") == ", ".join(f"{one.name}={one.default}" for one in parameters)


def test_the_attributes_of_the_kit_are_the_codes() -> None:
    text = SECTIONS["Conformance kit"].partition("describe the backend:")[2].partition(".")[0]
    assert set(re.findall(r"`(\w+)`", text)) == {name for name in vars(Settings) if not name.startswith("_")} - {"run_enqueued"}


def test_names_of_jobqueue_on_the_page_exist() -> None:
    for name in re.findall(r"`jobqueue\.testing\.(\w+)`", PAGE):
        assert name in (*testing.__all__, "conformance", "sample_tasks")
    for name in re.findall(r"from jobqueue import (.+)", PAGE):
        assert {*name.split(", ")} <= {*jobqueue.__all__}
