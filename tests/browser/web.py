"""Serve the test's database by uvicorn, as in production: a process of its own that a test can end and start again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path

from tests.faults.harness import ROOT, database_entry, wait_until
from tests.faults.server import free_port


class Web:
    """One server, always at the same address."""

    def __init__(self, directory: Path) -> None:
        """Choose a port; the log lies in a directory."""
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = directory / "web.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Web:
        """Start it, and wait until it answers."""
        command = ["-m", "uvicorn", "tests.browser.asgi:application", "--port", str(self.port), "--log-level", "warning"]
        values = {"DJANGO_SETTINGS_MODULE": "tests.browser.site", "FAULTS_DATABASE": json.dumps(database_entry())}
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, *command, "--timeout-graceful-shutdown", "2"],
                cwd=ROOT,
                env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **values},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        wait_until(self._answers, "the site answers", 30)
        return self

    def stop(self) -> None:
        """End it as a deployment does; by force where that is not enough."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
        self._process = None

    def clean_up(self) -> None:
        """End it, and show what it said if the test fails."""
        self.stop()
        sys.stdout.write(f"--- {self.log.name}\n{self.log.read_text(errors='replace')}\n")

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log.read_text()
        connection = HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/admin/login/")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()
