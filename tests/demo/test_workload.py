"""The catalogue of work kinds: the predictions never change, and are correct."""

from __future__ import annotations

import re
from collections import Counter
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from demo_project.workload.kinds import KINDS, Foretold, catalogue, foretell
from demo_project.workload.tasks import TASKS
from demo_project.workload.verdict import differences, verdicts
from jobqueue.models import Job
from jobqueue.testing import run_until_idle
from tests.factories import JobFactory

PAGE = Path(__file__).resolve().parents[2] / "docs" / "catalogue.md"


def run(*args: Any) -> tuple[str, int]:
    """Return what the command says, and the status it ends with."""
    out = StringIO()
    try:
        call_command("enqueue_catalogue", *map(str, args), stdout=out)
    except SystemExit as end:
        return out.getvalue(), int(end.code or 0)
    return out.getvalue(), 0


# What is foretold


def test_predictions_are_the_same_on_every_machine() -> None:
    assert foretell("flaky", 7) == Foretold("flaky", 7, 0.022, "SUCCESS", 2, True, 31649)
    assert foretell("slow_then_fails", 7, "other", 0.5) == Foretold("slow_then_fails", 7, 0.366, "ERROR", 1, False, None)


def test_kinds_numbers_and_seeds_differ_and_the_pace_stretches() -> None:
    seconds = {foretell("long", number, seed).duration_seconds for number in range(100) for seed in ("", "a")}
    assert len(seconds) > 150
    assert all(2 <= one <= 5 for one in seconds)
    assert {foretell("flaky", number).attempts for number in range(100)} == {2, 3}
    assert foretell("long", 3, pace=0.1).duration_seconds == pytest.approx(foretell("long", 3).duration_seconds / 10, abs=0.001)
    assert foretell("long", 3, pace=0).duration_seconds == 0


def test_a_mix_has_its_kinds_by_their_weights() -> None:
    told = list(catalogue(5000))
    assert told == list(catalogue(5000))
    assert told[:100] == list(catalogue(100)), "a longer mix begins as a shorter one"
    counts = Counter(one.kind for one in told)
    assert {*counts} == {*KINDS}
    assert counts["instant"] > 4 * counts["broken"] > 0
    assert {one.kind for one in catalogue(50, ["long", "short"], "x")} == {"long", "short"}
    assert {one.outcome for one in told} == {"SUCCESS", "ERROR", "CANCELED"}


def test_each_kind_has_its_task() -> None:
    assert [task.module_path.rpartition(".")[2] for task in TASKS.values()] == [*KINDS]
    assert all(task.max_attempts >= foretell(name, 1).attempts for name, task in TASKS.items())


# The command


@pytest.mark.long
@pytest.mark.django_db
def test_a_mix_is_enqueued_as_predicted_and_checked() -> None:
    text, status = run(
        "--count", 40, "--seed", "s", "--pace", 0.001, "--kinds", "instant,flaky,broken,gives_up,hopeless,short,heavy,long,sleepy"
    )
    assert (status, Job.objects.count(), {*Job.objects.values_list("queue", flat=True)}) == (0, 40, {"catalogue"})
    assert text.startswith("Enqueued 40 jobs of the seed 's', ")
    assert run("--check", "--seed", "s") == ("40 jobs of the seed 's': 0 as predicted, 0 differently, 40 not ended.\n", 1)
    while run_until_idle(scheduled=True):
        pass
    assert run("--check", "--seed", "s") == ("40 jobs of the seed 's': 40 as predicted, 0 differently, 0 not ended.\n", 0)
    assert run("--check", "--seed", "t")[1] == 1, "nothing was checked"
    failed = Job.objects.filter(status="ERROR").first()
    assert failed is not None
    Job.objects.filter(pk=failed.pk).update(status="SUCCESS")
    text, status = run("--check", "--seed", "s")
    assert status == 1
    assert f"  job {failed.pk} (" in text
    assert "it ended as SUCCESS, predicted was ERROR" in text


@pytest.mark.django_db
def test_jobs_go_to_another_queue_where_one_is_named() -> None:
    run("--count", 3, "--queue", "mail")
    assert {*Job.objects.values_list("queue", flat=True)} == {"mail"}


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["--kinds", "instant,odd"], "--kinds names 'odd', which is not a kind; the kinds are instant, "),
        (["--count", "0"], "--count is 0; it must be a whole number from 1 to 1,000,000"),
        (["--pace", "nan"], "--pace is nan; it must be a number from 0 to 1000"),
        (["--pace", "-1"], "--pace is -1.0; it must be a number from 0 to 1000"),
    ],
)
def test_invalid_values_are_refused(args: list[str], text: str) -> None:
    with pytest.raises(CommandError, match=text):
        run(*args)


def test_the_kinds_are_listed() -> None:
    text, status = run("--list")
    assert (status, [line.split()[0] for line in text.splitlines()]) == (0, [*KINDS])


# The comparison


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({}, []),
        ({"attempt": 3, "crashes": 1}, []),
        ({"attempt": 3}, ["it took 3 runs, 0 of them lost with a worker; predicted were 2"]),
        ({"attempt": 1, "crashes": 1}, ["it took 1 runs, 1 of them lost with a worker; predicted were 2"]),
        ({"result": 6}, ["its result is 6, predicted was 5"]),
    ],
)
def test_a_job_that_differs_is_reported(values: dict[str, Any], text: list[str]) -> None:
    told = Foretold("flaky", 1, 0.0, "SUCCESS", 2, True, 5)
    assert list(differences(JobFactory(success=True, **{"attempt": 2, "result": 5, **values}), told)) == text


@pytest.mark.django_db
def test_a_run_that_was_too_short_is_reported() -> None:
    job = JobFactory(success=True, result=5, attempt=1)
    Job.objects.filter(pk=job.pk).update(started_at=job.finished_at)
    job.refresh_from_db()
    told = Foretold("long", 1, 2.0, "SUCCESS", 1, False, 5)
    assert list(differences(job, told)) == ["its last run took 0.00 s, predicted were 2.00 s"]


@pytest.mark.django_db
@pytest.mark.parametrize("args", [[], [1], [1, "s"], [1, "other", 1.0], ["1", "s", 1.0], [1, "s", "fast"], {"number": 1}])
def test_jobs_with_other_arguments_are_ignored(args: Any) -> None:
    JobFactory(task=TASKS["instant"].module_path, args=args)
    assert list(verdicts(seed="s")) == []


# The page


def test_the_page_has_every_kind_as_it_is() -> None:
    rows = re.findall(r"^\| `([a-z_]+)` \| ([A-Z]+) \|([^|]*)\| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    assert [(name, outcome) for name, outcome, _, _ in rows] == [(kind.name, kind.outcome) for kind in KINDS.values()]
    for name, _, seconds, text in rows:
        least, most = KINDS[name].seconds
        assert seconds.strip().startswith(f"{least:g} to {most:g} s") == (most > 0)
        assert text.replace("`", "").startswith(KINDS[name].text)
