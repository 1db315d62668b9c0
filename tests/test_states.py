"""The table of moves, and the page that shows it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jobqueue.core import states

PAGE = (Path(__file__).parent.parent / "docs" / "states.md").read_text()
NAMES = {
    states.NEW: "[*]",
    states.PENDING_TIME: "PENDING_time",
    states.PENDING_CHILDREN: "PENDING_children",
    states.PENDING_TARGET: "PENDING_target",
    **{place: place[0] for place in states.MOVES if place[0] not in ("", "PENDING")},
}
MOVES = {(origin, destination) for origin, destinations in states.MOVES.items() for destination in destinations}


def test_every_status_is_a_place_and_every_move_leads_to_one() -> None:
    assert {place[0] for place in states.MOVES} - {""} == {*states.Status.values}
    assert {destination for _, destination in MOVES} == {*states.MOVES} - {states.NEW}


def test_nothing_leaves_a_final_state_and_something_leaves_every_other() -> None:
    assert {place[0] for place, destinations in states.MOVES.items() if not destinations} == {*states.FINAL}


def test_only_a_queued_job_or_one_behind_its_target_can_start_to_run() -> None:
    assert {origin for origin, destination in MOVES if destination == states.RUNNING} == {states.QUEUED, states.PENDING_TARGET}


def test_only_a_running_job_succeeds() -> None:
    assert [origin for origin, destination in MOVES if destination == states.SUCCESS] == [states.RUNNING]


def test_a_job_is_live_or_has_ended_and_final_is_ended() -> None:
    assert {*states.LIVE} | {*states.ENDED} == {*states.Status}
    assert not {*states.LIVE} & {*states.ENDED}
    assert {*states.FINAL} < {*states.ENDED}


@pytest.mark.parametrize("origin", states.MOVES, ids=NAMES.get)
@pytest.mark.parametrize("destination", states.MOVES, ids=NAMES.get)
def test_a_move_is_allowed_where_the_table_has_it_and_refused_elsewhere(origin: states.Place, destination: states.Place) -> None:
    assert states.allows(origin, destination) == ((origin, destination) in MOVES)
    if states.allows(origin, destination):
        states.check(origin, destination)
    else:
        with pytest.raises(ValueError, match="A job cannot move from"):
            states.check(origin, destination)


def test_a_place_is_plain_text() -> None:
    assert states.place(states.Status.PENDING, states.WaitingFor.TIME) == ("PENDING", "time") == states.PENDING_TIME


def test_the_diagram_has_every_move_and_no_other() -> None:
    diagram = PAGE.split("```mermaid")[1].split("```")[0]
    drawn = re.findall(r"^ +(\S+) --> (\S+?)(?: : .+)?$", diagram, re.MULTILINE)
    shown = [(origin, destination) for origin, destination in drawn if destination != "[*]"]
    assert len(shown) == len(set(shown))
    assert set(shown) == {(NAMES[origin], NAMES[destination]) for origin, destination in MOVES}
    assert {origin for origin, destination in drawn if destination == "[*]"} == {*states.FINAL}


def test_the_page_says_what_each_state_means_in_the_order_of_the_code() -> None:
    assert re.findall(r"^\| `([A-Z]+)` \|", PAGE.split("## Moves")[0], re.MULTILINE) == states.Status.values


def test_the_table_of_verbs_says_what_the_code_does() -> None:
    rows = re.findall(r"^\| `(PENDING|QUEUED|RUNNING|PAUSED|ERROR|SUCCESS|CANCELED)` \| (.+?) \| (.+?) \| (.+?) \|$", PAGE, re.MULTILINE)
    table = {row[0]: row[1:] for row in rows}
    assert [*table] == states.Status.values
    for place in states.MOVES.keys() - {states.NEW, states.RUNNING}:
        for column, destination in enumerate((states.PAUSED, states.CANCELED)):
            told = table[place[0]][column]
            assert (told != "refused") == states.allows(place, destination), (place, told)
    assert "requested" in table["RUNNING"][0]
    assert "requested" in table["RUNNING"][1]
