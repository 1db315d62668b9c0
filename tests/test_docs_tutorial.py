"""The tutorial: a test follows it from the first block to the last, in a new project."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.harness import wait_until

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"```(console|python)\n(.*?)```", re.DOTALL)
SECONDS = 60

pytestmark = [pytest.mark.faults, pytest.mark.slow]  # a dozen interpreters start, one after another


class Reader:
    """A reader who follows the tutorial: edits files, runs commands, and keeps what stays open in other terminals."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.terminals: list[subprocess.Popen[bytes]] = []
        self.environment = {name: value for name, value in os.environ.items() if name not in ("DJANGO_SETTINGS_MODULE", "DATABASE_URL")}
        self.environment |= {"DJANGO_SUPERUSER_PASSWORD": "a-test", "PYTHONPATH": str(ROOT)}

    def edit(self, text: str) -> None:
        """Add a block to the file that its first line names."""
        name, _, code = text.partition("\n")
        with (self.folder / name.removeprefix("# ")).open("a") as file:
            file.write(f"\n{code}")

    def run(self, line: str) -> str:
        """Run a command to its end, or start it if it keeps running; return what it has printed."""
        words = shlex.split(line)
        if words[:4] == ["python", "-m", "pip", "install"]:
            return ""  # the test runs in an environment that has it
        if words[0] == "cd":
            self.folder /= words[1]
            return ""
        words = [sys.executable, "-m", "django", *words[1:]] if words[0] == "django-admin" else [sys.executable, *words[1:]]
        if line.endswith(("runworkers", "runserver")):
            words += ["--noreload", "127.0.0.1:0"] if line.endswith("runserver") else []
            with (self.folder / f"terminal-{len(self.terminals)}.log").open("wb") as log:
                self.terminals.append(subprocess.Popen(words, cwd=self.folder, env=self.environment, stdout=log, stderr=log))
            return ""
        if line.endswith("createsuperuser"):
            words += ["--noinput", "--username", "ada", "--email", "ada@example.com"]
        done = subprocess.run(words, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=SECONDS, check=False)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout

    def report(self, job: int) -> str:
        """Return what the command line says about a job."""
        return self.run(f"python manage.py jobqueue report {job}")

    def close(self) -> None:
        """Close the other terminals."""
        for process in self.terminals:
            process.terminate()
        for process in self.terminals:
            try:
                process.wait(SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    reader = Reader(tmp_path)
    yield reader
    reader.close()


def test_each_block_of_the_tutorial_does_what_the_text_says(reader: Reader) -> None:
    blocks = BLOCK.findall((ROOT / "docs" / "tutorial.md").read_text())
    printed = ""
    for language, text in blocks:
        if language == "python":
            reader.edit(text)
            continue
        for line in text.strip().split("\n"):
            if not line.startswith("$ "):
                assert line in printed, f"{line!r} is expected, and this was printed: {printed}"
                continue
            prepare(reader, line)
            printed = reader.run(line[2:])
            check(reader, line, printed)
    assert len(blocks) >= 12, "the pattern finds the blocks"


def prepare(reader: Reader, line: str) -> None:
    """Wait as the reader would, until the job is where the text says that it is."""
    if "pause(2)" in line:
        wait_until(lambda: "RUNNING" in reader.report(2), "job 2 runs", SECONDS)
    elif "resume-job 2" in line:
        wait_until(lambda: "PAUSED" in reader.report(2), "job 2 is paused", SECONDS)


def check(reader: Reader, line: str, printed: str) -> None:
    """Check what the text says about the result of a command."""
    if "report 1" in line:
        assert "SUCCESS" in printed
        assert "Hello, Ada" in printed
    elif "cancel 2" in line:
        wait_until(lambda: "CANCELED" in reader.report(2), "job 2 is canceled", SECONDS)
    elif "runserver" in line:
        log = reader.folder / f"terminal-{len(reader.terminals) - 1}.log"
        address = wait_until(lambda: re.search(rb"http://127.0.0.1:\d+/", log.read_bytes()), "the server runs", SECONDS)
        with urllib.request.urlopen(f"{address[0].decode()}admin/jobqueue/job/", timeout=SECONDS) as answer:  # noqa: S310 - the test's own server
            assert b"username" in answer.read(), "the admin asks for the user"
