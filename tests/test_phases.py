"""Phases as data: their declaration, the total progress, and what a deployment may change."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobqueue import InvalidOption, JobTask, PhasesChanged, fixed, phase, pipeline, task
from jobqueue.core.phases import PhaseState, declared, overall, reconciled


def one(context: Any) -> None: ...
def two(context: Any) -> None: ...
def run(context: Any) -> None: ...
async def arun(context: Any) -> None: ...


@task
def a_task() -> None: ...


def test_names_are_those_of_the_functions_or_given_ones() -> None:
    assert [(each.name, each.func) for each in declared([one, phase("the second")(two)])] == [("one", one), ("the second", two)]


@pytest.mark.parametrize(
    ("phases", "says"),
    [
        (one, "phases is a function; it must be a list of functions"),
        ([], "phases lists 0 functions; a pipeline has from 1 to 1000 phases. A task without phases is declared with @task"),
        ([one, one], "phases names 'one' more than once; the names of a pipeline's phases must differ. Give one of them another name"),
        (["one"], "phases lists 'one'; each phase must be a callable of (context, *args, **kwargs)"),
        ([lambda context: None], 'which has no name. Give it one: phase("name")(function).'),
        ([a_task], "phases lists the task 'tests.test_phases.a_task'; a phase must be a plain function. Remove its @task."),
    ],
)
def test_a_wrong_declaration_is_refused_with_the_value_the_rule_and_the_fix(phases: Any, says: str) -> None:
    with pytest.raises(InvalidOption, match=re.escape(says)):
        pipeline(phases=phases)


@pytest.mark.parametrize("name", ["", "  ", "x" * 201, None, 7, "a\nb", "a\0", "\ud800"])
def test_a_wrong_name_is_refused(name: Any) -> None:
    with pytest.raises(InvalidOption, match="The name of a phase is"):
        phase(name)


def test_the_longest_name_is_taken() -> None:
    assert declared([phase("x" * 200)(one)])[0].name == "x" * 200


@pytest.mark.parametrize(
    ("declare", "says"),
    [
        (lambda: pipeline(phases=[one], transactional=True)(run), "transactional=True is not allowed for a pipeline"),
        (lambda: pipeline(phases=[arun])(run), "The pipeline's function is 'def' and its phase 'arun' is not"),
        (lambda: pipeline(phases=[one])(arun), "The pipeline's function is 'async def' and its phase 'one' is not"),
        (lambda: pipeline(phases=[one], takes_context=False)(run), "Unknown option 'takes_context'"),
        (lambda: pipeline(phases=[one], max_attempt=2)(run), "did you mean 'max_attempts'?"),
        (lambda: pipeline(phases=[one])(a_task), "Remove its other decorator"),
        (lambda: JobTask(func=run, priority=0, queue_name="default", backend="default", run_after=None, phases=(one,)), "@pipeline"),  # type: ignore[arg-type]
    ],
)
def test_an_invalid_pipeline_is_refused(declare: Callable[[], Any], says: str) -> None:
    with pytest.raises(InvalidOption, match=re.escape(says)):
        declare()


def test_a_pipeline_takes_the_options_of_a_task() -> None:
    options: dict[str, Any] = {"max_attempts": 3, "backoff": fixed(1), "retry_on": (OSError,), "recovery": "hold", "target": "t"}
    made = pipeline(phases=[one, two], queue_name="q", priority=3, unique_key="k", metadata={"a": 1}, **options)(run)
    assert (made.queue_name, made.priority, made.unique_key, made.metadata, made.takes_context) == ("q", 3, "k", {"a": 1}, True)
    assert {name: getattr(made, name) for name in options} == options
    assert [each.name for each in made.using(priority=5).phases] == ["one", "two"]
    with pytest.raises(InvalidOption, match="read from the declaration of the task"):
        made.using(phases=[one])


@pytest.mark.parametrize(("index", "percent", "shown"), [(0, 50, 17), (1, 25, 42), (2, 80, 93), (0, 0, 0), (2, 100, 100), (3, 0, 100)])
def test_overall_progress_is_exact(index: int, percent: int, shown: int) -> None:
    assert overall(index, percent, 3) == shown


@given(number=st.integers(1, 1000), data=st.data())
def test_overall_progress_is_rounded_half_up_from_0_to_100(number: int, data: st.DataObject) -> None:
    index, percent = data.draw(st.integers(0, number - 1)), data.draw(st.integers(0, 100))
    assert overall(index, percent, number) == (2 * (100 * index + percent) + number) // (2 * number)
    assert 0 <= overall(index, percent, number) <= overall(index + 1, 0, number) <= 100


def phase_states(**statuses: str) -> list[PhaseState]:
    return [PhaseState(name, status) for name, status in statuses.items()]


@pytest.mark.parametrize(
    ("names", "finished"),
    [
        (["a", "b", "c"], ["a"]),
        (["a", "new", "b"], ["a"]),
        (["a", "c"], ["a"]),
        (["a", "c", "b"], ["a"]),
        (["b", "c"], []),  # a was taken out, after it had finished
        (["a"], ["a"]),
    ],
)
def test_a_job_continues_if_its_finished_phases_come_first(names: list[str], finished: list[str]) -> None:
    found = reconciled(names, phase_states(a="SUCCESS", b="PENDING", c="PENDING"))
    assert [each.name for each in found] == names
    assert [each.name for each in found if each.finished] == finished


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["first", "b", "c"], "no longer has phase 'a', which this job has finished, and has phase 'first', which is new to it"),
        (["new", "a", "b", "c"], "now has phase 'new' before phase 'a', which this job has finished already"),
        (["b", "a", "c"], "now has phase 'b' before phase 'a'"),
    ],
)
def test_a_job_that_cannot_continue_says_which_phases_are_in_its_way(names: list[str], says: str) -> None:
    with pytest.raises(PhasesChanged, match=re.escape(says)):
        reconciled(names, phase_states(a="SUCCESS", b="PENDING", c="PENDING"))
