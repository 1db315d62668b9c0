"""The demo's program as a new user runs it: real processes, a real terminal, a database and a data folder of the test."""

import contextlib
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import psycopg
import pytest

from demo_project import embedded
from demo_project.launch import batch
from tests import settings as suite

pytestmark = [pytest.mark.faults, pytest.mark.slow(seconds=110)]

SMALL = ["--jobs", str(batch.SMALLEST)]
DONE = str(batch.SMALLEST - 2)  # one ends in ERROR, one is canceled
PATIENCE = 90
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\].*?\x1b\\")
TAKE_THE_TERMINAL = "import fcntl, os, sys, termios; fcntl.ioctl(1, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Point the demo at a new database and an empty data folder."""
    base = {**os.environ, "DEMO_DATA_DIR": str(tmp_path / "data"), "DJANGO_SETTINGS_MODULE": "demo_project.settings", "COLUMNS": "100"}
    if suite.SQLITE:
        yield {**base, "DATABASE_URL": f"sqlite:///{tmp_path}/demo.sqlite3"}
        return
    config = embedded.database(f"{suite.NAME}_demo")
    with psycopg.connect(host=config["HOST"], user="postgres", dbname="postgres", autocommit=True) as connection:
        drop = psycopg.sql.SQL("DROP DATABASE {} WITH (FORCE)").format(psycopg.sql.Identifier(config["NAME"]))
        connection.execute(drop)  # left behind by a run that was killed
        embedded.database(config["NAME"])
        yield {**base, "DATABASE_URL": f"postgres://postgres@/{config['HOST']}/{config['NAME']}"}
        connection.execute(drop)


class Program:
    """The demo, running; what it prints is read as it comes."""

    def __init__(self, environment: dict[str, str], *arguments: str, terminal: bool) -> None:
        """Start it, with a terminal of its own if so wished."""
        ours, theirs = pty.openpty() if terminal else os.pipe()
        self._ours, self._raw = ours, ""
        command = [sys.executable, "-m", "demo_project.demo", "--port", "8950", *arguments]
        self.process = subprocess.Popen(
            [sys.executable, "-c", TAKE_THE_TERMINAL, *command] if terminal else command,
            cwd=embedded.CHECKOUT,
            env=environment,
            stdin=theirs if terminal else subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)

    def until(self, pattern: str) -> re.Match[str]:
        """Read until the output contains the pattern, and return the match."""
        end = monotonic() + PATIENCE
        while (found := re.search(pattern, self.text)) is None:
            assert monotonic() < end, self.text
            assert self._read(1.0), self.text
        return found

    @property
    def text(self) -> str:
        """What a person reads: the output without colours, links and moves of the cursor."""
        return CONTROL.sub("", self._raw)

    def press_ctrl_c(self) -> None:
        """Send the character of the key: the terminal turns it into a signal for all processes in its foreground."""
        os.write(self._ours, b"\x03")

    def ended(self) -> int:
        """Read to the end and return the exit status."""
        end = monotonic() + PATIENCE
        while self._read(1.0):
            assert monotonic() < end, self.text
        return self.process.wait(PATIENCE)

    def close(self) -> None:
        """End it the hard way, if it still runs."""
        if self.process.poll() is None:
            self.process.terminate()
            self.ended()
        os.close(self._ours)

    def _read(self, seconds: float) -> bool:
        """Add what was printed; return False at the end of it."""
        if not select.select([self._ours], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self._ours, 65536)
        except OSError:  # a terminal raises this if no process has it open any more
            return False
        self._raw += data.decode(errors="replace")
        return bool(data)


@pytest.fixture
def start(environment: dict[str, str]) -> Iterator[Any]:
    """Start the demo any number of times, and end whatever still runs."""
    with contextlib.ExitStack() as stack:

        def program(*arguments: str, terminal: bool = False) -> Program:
            started = Program(environment, *arguments, terminal=terminal)
            stack.callback(started.close)
            return started

        yield program


def workers(environment: dict[str, str]) -> set[int]:
    """Return the worker processes that belong to the test's data folder."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            told = (folder / "environ").read_bytes()
            if f"DEMO_DATA_DIR={environment['DEMO_DATA_DIR']}\0".encode() in told and b"runworkers" in (folder / "cmdline").read_bytes():
                found.add(int(folder.name))
    return found


def status_of_kinds(text: str) -> dict[str, list[str]]:
    """Return the rows of the summary: done, retried, error, canceled of each task."""
    return {row[0]: row[2:6] for line in text.splitlines() if len(row := line.split()) == 8}


def test_without_a_terminal_the_demo_ends_with_0_when_the_batch_is_done(start: Any, environment: dict[str, str]) -> None:
    program = start(*SMALL)
    assert program.ended() == 0, program.text
    rows = status_of_kinds(program.text)
    assert rows["broken_parser"] == ["·", "·", "1", "·"]
    assert rows["export_archive"] == ["·", "·", "·", "1"]
    assert rows["flaky_refresh"] == ["8", "8", "·", "·"]
    assert rows["all"] == [DONE, "8", "1", "1"]
    assert not workers(environment)
    data = Path(environment["DEMO_DATA_DIR"])
    assert (data / "admin-password").read_text() in program.text
    assert len(list((data / "mail").iterdir())) == 3
    assert len(list((data / "media" / "covers").iterdir())) == 1
    assert not (data / "media" / "exports").exists()


def test_after_ctrl_c_no_process_stays_and_the_next_run_takes_up_what_was_left(start: Any, environment: dict[str, str]) -> None:
    program = start(*SMALL, terminal=True)
    program.until("flaky_refresh")
    assert len(workers(environment)) == 1
    program.press_ctrl_c()
    assert program.ended() == 130, program.text
    assert "Interrupted." in program.text
    assert not workers(environment)
    again = start("--once", "--no-serve", *SMALL)
    again.until(r"Enqueued \d+ jobs of 10 kinds; [1-9]\d* of an earlier run continue")
    assert again.ended() == 0, again.text
    assert "http" not in again.text
    assert status_of_kinds(again.text)["all"][2:] == ["1", "1"]


def test_in_a_terminal_the_site_and_the_workers_stay_until_ctrl_c(start: Any, environment: dict[str, str]) -> None:
    program = start(*SMALL, terminal=True)
    url = program.until(r"http://127\.0\.0\.1:\d+/").group()
    program.until("index_module")  # the live display: the worker has been started
    (worker,) = workers(environment)
    os.kill(worker, signal.SIGKILL)
    program.until("process [0-9]+ takes over")
    assert worker not in workers(environment)
    program.until("run until Ctrl-C")
    done, _, *others = status_of_kinds(program.text)["all"]
    assert [done, *others] == [DONE, "1", "1"]
    with urllib.request.urlopen(f"{url}?q=asyncio") as response:  # noqa: S310 - an address of the test's own server
        assert "asyncio" in response.read().decode()
    assert len(workers(environment)) == 1
    program.press_ctrl_c()
    assert program.ended() == 0, program.text
    assert not workers(environment)
    with pytest.raises(OSError):
        urllib.request.urlopen(url)  # noqa: S310 - an address of the test's own server


TROUBLES = {"stuck_threads", "blocked_targets", "failed_jobs", "retried_webhooks"}


def test_in_a_terminal_the_demo_seeds_troubles_and_ends_in_spite_of_them(start: Any, environment: dict[str, str]) -> None:
    program = start(*SMALL, terminal=True)
    program.until(r"overview +http://127\.0\.0\.1:\d+/admin/jobqueue/")
    health = [sys.executable, "manage.py", "jobqueue", "health", "--json"]
    found: set[str] = set()
    end = monotonic() + PATIENCE
    while not found >= TROUBLES:
        assert monotonic() < end, found
        program.until("flaky_refresh")  # keeps reading, so that the program never waits for this terminal
        told = subprocess.run(health, cwd=embedded.CHECKOUT, env=environment, stdout=subprocess.PIPE, check=False, timeout=PATIENCE).stdout
        found = {problem["code"] for problem in json.loads(told)["problems"]} if told else set()
    errors = subprocess.run([*health[:3], "errors", "--json"], cwd=embedded.CHECKOUT, env=environment, stdout=subprocess.PIPE, check=True)
    kinds = [kind for kind in json.loads(errors.stdout) if kind["task"].endswith("ship_order")]
    assert sorted(kind["number"] for kind in kinds) == [6, 18, 36]
    program.press_ctrl_c()
    program.ended()
    assert not workers(environment)


@pytest.mark.parametrize("jobs", ["1", "1000000", "-5"])
def test_a_batch_that_cannot_be_is_refused_before_anything_is_enqueued(start: Any, jobs: str) -> None:
    program = start("--jobs", jobs)
    assert program.ended() == 1
    assert f"A batch of {jobs} jobs: it must have from {batch.SMALLEST} to" in program.text
    assert "Enqueued" not in program.text


HOLDER = """
import json, sys, threading
from pathlib import Path
from demo_project import embedded
data = Path(sys.argv[1])
embedded.database("one", data)
print(json.dumps(int((data / "postmaster.pid").read_text().split()[0])), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Return a folder that the server's own user may enter; pytest makes its folders private whenever a session starts."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def test_the_embedded_server_stops_with_its_last_user_also_when_another_was_killed(open_folder: Path) -> None:
    def holder() -> "subprocess.Popen[str]":
        command = [sys.executable, "-c", HOLDER, str(open_folder / "postgres")]
        return subprocess.Popen(command, cwd=embedded.CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    users = [holder() for _ in range(3)]
    servers = {json.loads(user.stdout.readline()) for user in users if user.stdout}
    assert len(servers) == 1
    server = servers.pop()
    users[0].kill()
    users[0].wait()
    users[1].communicate("")
    assert Path(f"/proc/{server}").exists()
    users[2].communicate("")
    waiting, end = threading.Event(), monotonic() + 10
    while Path(f"/proc/{server}").exists() and monotonic() < end:
        waiting.wait(0.05)
    assert not Path(f"/proc/{server}").exists()
    for user in users:
        for stream in (user.stdin, user.stdout):
            if stream:
                stream.close()
