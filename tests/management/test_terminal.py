"""On a terminal, tables have colours, relative times and the columns that fit; elsewhere they are complete and plain."""

from __future__ import annotations

import threading
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.core.management.base import OutputWrapper
from django.core.management.color import make_style, no_style
from django.db import connection
from django.test.utils import CaptureQueriesContext

from jobqueue import clock
from jobqueue.management import status, tables, terminal
from jobqueue.management.terminal import Screen, screen_of, shown_on
from tests.factories import JobFactory, WorkerFactory

pytestmark = pytest.mark.django_db
COLORS = make_style("dark")


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")


def run(*args: str, out: StringIO | None = None, **options: Any) -> str:
    out = Terminal() if out is None else out
    call_command("jobqueue", *args, stdout=out, **options)
    return out.getvalue()


def scene() -> None:
    JobFactory(error=True, finished_at=clock.now() - timedelta(minutes=3), message="ValueError: " + "long " * 40, queue="mail")
    WorkerFactory(host="a-host-with-a-long-name", queues=["default", "mail", "reports"])


@pytest.mark.parametrize("what", ["status", "workers", "errors", "jobs", "leaders", "schedules"])
def test_each_line_fits_on_a_terminal_of_80_columns(what: str) -> None:
    scene()
    lines = run(what).splitlines()
    assert max(map(len, lines)) <= 80
    assert not any("\x1b" in line for line in lines)
    assert run(what, "--no-color").splitlines()[0] == lines[0]


def test_columns_that_are_left_out_are_named_and_a_pipe_gets_all() -> None:
    scene()
    text = run("errors")
    assert "(too narrow for: " in text
    head = text.splitlines()[1].split()
    assert "error" in head
    assert "jobs" in head
    piped = run("errors", out=StringIO())
    assert "too narrow" not in piped
    assert all(column in piped for column in tables.ERROR_COLUMNS)


def test_times_are_relative_on_a_terminal_and_absolute_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")  # room for the column of times, however long the numbers of jobs are
    scene()
    assert "3 min ago" in run("errors")
    piped = run("errors", out=StringIO())
    assert "ago" not in piped
    assert f"{clock.now() - timedelta(minutes=3):%Y-%m-%d}" in piped
    assert "0 s ago" in run("jobs") or "1 s ago" in run("jobs")


@pytest.mark.parametrize(
    ("seconds", "text"), [(-5, "5 s ago"), (-180, "3 min ago"), (7200, "in 2 h"), (-3 * 86_400, "3 d ago"), (0, "0 s ago")]
)
def test_a_distance_has_one_unit(seconds: float, text: str) -> None:
    assert tables.distance(seconds) == text


def test_colors_are_for_terminals_and_can_be_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def colors(stream: StringIO, style: Any = COLORS, *, force: bool = False) -> Any:
        return screen_of(OutputWrapper(stream), style, force_color=force).style

    assert colors(Terminal()) is COLORS
    assert colors(StringIO()) is None
    assert colors(StringIO(), force=True) is COLORS
    monkeypatch.setenv("NO_COLOR", "1")
    assert colors(Terminal()) is None
    assert colors(Terminal(), force=True) is COLORS


def test_a_cell_is_colored_and_no_control_character_of_a_name_passes() -> None:
    rows = [("ERROR", "q\x1b[31m", "-"), ("RUNNING", "q", "it hangs")]
    columns = ("status", "queue", "problems")
    with shown_on(Screen(style=COLORS)):
        text = "\n".join(map(tables.shown, tables.table(columns, rows)))
    with shown_on(Screen(style=no_style())):
        plain = "\n".join(map(tables.shown, tables.table(columns, rows)))
    assert COLORS.ERROR("it hangs") in text
    assert COLORS.SUCCESS("RUNNING") in text
    assert "q\\x1b[31m" in text
    assert "\x1b" not in plain


def test_json_is_the_same_everywhere() -> None:
    scene()
    assert run("errors", "--json", force_color=True) == run("errors", "--json", out=StringIO())


def watched(monkeypatch: pytest.MonkeyPatch, out: StringIO, times: int) -> tuple[str, list[int]]:
    """Watch until Ctrl-C after some reports; return the output, and the number of statements of each report."""
    counts: list[int] = []
    queries = CaptureQueriesContext(connection)

    def wait(self: threading.Event, timeout: float | None = None) -> bool:
        counts.append(len(queries) - sum(counts))
        if len(counts) == times:
            raise KeyboardInterrupt
        JobFactory()
        counts[-1] += 0
        return False

    monkeypatch.setattr(threading.Event, "wait", wait)
    with queries:
        text = run("status", "--watch", "5", out=out)
    return text, counts


def test_a_watch_redraws_a_terminal_until_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    text, counts = watched(monkeypatch, Terminal(), 3)
    assert text.count(status.CLEAR) == len(counts) == 3
    assert max(counts) < 40
    assert all(len(part.splitlines()) <= 24 for part in text.split(status.CLEAR))


def test_a_watch_prints_one_report_after_another_into_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    text, _counts = watched(monkeypatch, StringIO(), 2)
    assert text.count("every 5 s") == 2
    assert "\x1b" not in text


@pytest.mark.parametrize("given", ["0", "nan", "x", "3601"])
def test_a_bad_interval_is_rejected(given: str) -> None:
    with pytest.raises(CommandError, match=r"--watch is .* from 1 to 3600"):
        run("status", "--watch", given)


def test_watch_and_json_exclude_each_other() -> None:
    with pytest.raises(CommandError, match="exclude each other"):
        run("status", "--watch", "--json")
    assert terminal.screen() == Screen()
