"""What the terminal shows."""

import os
from typing import Any

import pytest
from rich.console import Console

from demo_project.launch.display import Display, banner, kinds_table, running_table, summary
from demo_project.launch.watch import Ended, Kind, Running, Snapshot


def shown(*parts: Any, width: int = 100) -> str:
    """Return what a terminal of that width shows."""
    console = Console(width=width, record=True, force_terminal=True, file=open(os.devnull, "w"))  # noqa: SIM115
    with console.file:
        console.print(*parts)
        return console.export_text()


SNAPSHOT = Snapshot(
    {"index_module": Kind(waiting=5, running=1, done=3, failed=1)}, [Running(9, "index_module", "[red]json", 40, "[b]reading", 2, 3.4)]
)


def test_the_tables_show_counts_and_what_runs_as_it_is() -> None:
    rows = [line.split() for line in shown(kinds_table(SNAPSHOT)).splitlines()]
    assert ["index_module", "5", "·", "1", "3", "1", "·", "·"] in rows
    assert ["all", "5", "·", "1", "3", "1", "·", "·"] in rows
    text = shown(running_table(SNAPSHOT.running))
    assert "index_module (run 2)" in text
    assert "[red]json" in text
    assert "[b]reading" in text


def test_the_summary_has_a_line_for_each_task_and_one_for_all() -> None:
    jobs = [
        Ended(1, "a", "SUCCESS", 1, 2.0),
        Ended(2, "a", "SUCCESS", 0, 4.0),
        Ended(3, "b", "ERROR", 1, None),
        Ended(4, "b", "CANCELED", 0, 3.0),
    ]
    lines = [line.split() for line in shown(summary(jobs)).splitlines() if line.split() and line.split()[0] in ("a", "b", "all")]
    assert lines == [
        ["a", "2", "2", "1", "·", "·", "·", "3.00"],
        ["b", "2", "·", "·", "1", "1", "·", "3.00"],
        ["all", "4", "2", "1", "1", "1", "·", "3.00"],
    ]


def test_the_password_is_shown_as_it_is() -> None:
    assert "[b]x[/b]" in shown(banner("http://127.0.0.1:8000/", "admin", "[b]x[/b]", "log"))
    assert "http" not in shown(banner(None, "admin", "x", "log"))


@pytest.mark.parametrize("width", [60, 100, 160])
def test_the_live_display_fits_the_terminal(width: int) -> None:
    console = Console(width=width, height=40, force_terminal=True, file=open(os.devnull, "w"), record=True)  # noqa: SIM115
    with console.file:
        console.print(Display(console).picture(SNAPSHOT, 1.5))
        text = console.export_text()
    assert "4 of 10 jobs" in text
    assert max(len(line) for line in text.splitlines()) <= width


def test_a_low_terminal_shows_fewer_of_the_jobs_that_run() -> None:
    console = Console(width=80, height=24, force_terminal=True, file=open(os.devnull, "w"), record=True)  # noqa: SIM115
    kinds = {f"kind_{number}": Kind(running=9) for number in range(9)}
    with console.file:
        console.print(Display(console).picture(Snapshot(kinds, SNAPSHOT.running * 81), 1.5))
        lines = console.export_text().splitlines()
    assert len(lines) <= 24
    assert sum("reading" in line for line in lines) >= 3


def test_the_live_display_leaves_the_terminal_as_it_found_it(capsys: pytest.CaptureFixture[str]) -> None:
    with Display(Console(force_terminal=True, width=100, height=40)) as display:
        display.update(SNAPSHOT)
    written = capsys.readouterr().out
    assert "index_module" in written
    assert written.rindex("\x1b[?25h") > written.rindex("\x1b[?25l")


def test_without_a_terminal_there_is_one_plain_line_at_first_and_not_one_for_every_snapshot(capsys: pytest.CaptureFixture[str]) -> None:
    with Display(Console(force_terminal=False)) as display:
        for _ in range(5):
            display.update(SNAPSHOT)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1
    assert "4 of 10 ended" in lines[0]
