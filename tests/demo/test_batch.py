"""Composing the batch."""

import pytest

from demo_project.launch import batch
from demo_project.library import catalogue, tasks
from jobqueue import JobTask

SHELVES = {name: [source.name for source in sources] for name, sources in catalogue.packages().items()}
FULL = batch.full_size(SHELVES)


def flat(groups: list[batch.Group]) -> list[tuple[str, tuple[object, ...], dict[str, float]]]:
    """Return the jobs of a batch one by one."""
    return [(group.task, *call) for group in groups for call in group.calls]


def test_the_full_batch_has_at_least_200_jobs_of_6_kinds_and_indexes_every_module_once() -> None:
    groups = batch.compose(SHELVES, FULL)
    kinds = batch.kinds(groups)
    assert FULL == sum(kinds.values()) >= 200
    assert len(kinds) >= 6
    indexed = [arguments[0] for task, arguments, _ in flat(groups) if task == "index_module"]
    assert sorted(map(str, indexed)) == [source.name for source in catalogue.sources()]


def test_every_job_is_of_a_task_that_exists() -> None:
    assert all(isinstance(getattr(tasks, task), JobTask) for task in batch.kinds(batch.compose(SHELVES, FULL)))


def test_a_batch_is_the_same_each_time() -> None:
    assert batch.compose(SHELVES, 200) == batch.compose(SHELVES, 200)


@pytest.mark.parametrize("size", [batch.SMALLEST, 30, 100, 200, 500, FULL])
def test_a_batch_has_the_size_that_was_asked_for_and_every_kind(size: int) -> None:
    kinds = batch.kinds(batch.compose(SHELVES, size))
    assert sum(kinds.values()) == size
    assert len(kinds) == 10


@pytest.mark.parametrize("size", [-1, 0, batch.SMALLEST - 1, FULL + 1])
def test_a_size_that_cannot_be_is_refused_with_the_bounds(size: int) -> None:
    with pytest.raises(batch.WrongSize, match=rf"{size} jobs.*{batch.SMALLEST} to {FULL}"):
        batch.compose(SHELVES, size)


def test_the_full_batch_keeps_eight_slots_busy_for_one_to_two_minutes() -> None:
    waits = [
        options.get("pause", options.get("seconds", 0))
        for task, _, options in flat(batch.compose(SHELVES, FULL))
        if task != "export_archive"
    ]
    assert 60 * batch.SLOTS < sum(waits) + 10 < 100 * batch.SLOTS


def test_the_job_to_cancel_by_hand_takes_half_a_minute_and_leaves_time_to_log_in() -> None:
    first = batch.compose(SHELVES, FULL)[0]
    assert (first.task, first.calls) == ("rebuild_search", (((), {"seconds": 30.0}),))
    assert 15 <= first.options["run_after"].total_seconds() <= 40


def test_the_links_of_a_package_are_checked_behind_its_modules() -> None:
    jobs = flat(batch.compose(SHELVES, FULL))
    indexed = {arguments[0]: at for at, (task, arguments, _) in enumerate(jobs) if task == "index_module"}
    for at, (task, arguments, _) in enumerate(jobs):
        if task == "check_links":
            assert at > max(indexed[module] for module in SHELVES[str(arguments[0])])


def test_items_are_spread_evenly() -> None:
    assert batch.spread("abcdefgh", 4) == ["a", "c", "e", "g"]
    assert batch.spread("abc", 9) == ["a", "b", "c"]
    assert batch.spread("", 3) == []
