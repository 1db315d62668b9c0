"""The probes of real worker processes: hanging heartbeats, a drain, the end, a fleet, systemd."""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from jobqueue.lifecycle.workers import drain_worker
from jobqueue.models import Worker
from tests.faults import tasks
from tests.faults.harness import WorkerProcess, Workers, wait_for, wait_until
from tests.faults.test_processes import serving
from tests.probes.test_server import ask
from tests.rivals import Rival

pytestmark = [pytest.mark.faults, pytest.mark.django_db]
HTTP = ("--http", "127.0.0.1:0")


def port_of(worker: WorkerProcess) -> int:
    worker.ready()
    found = re.search(r"  probes    http://127\.0\.0\.1:(\d+)", worker.text)
    assert found, worker.text
    return int(found[1])


def becomes(port: int, path: str, status: int, seconds: float = 15.0) -> str:
    """Wait until a probe has this status; return its text."""
    found: dict[str, str] = {}

    def is_there() -> bool:
        current, found["text"] = ask(port, path)
        return current == status

    wait_until(is_there, f"{path} is {status}", seconds)
    return found["text"]


def lock_table() -> None:
    """Make every statement wait that changes a job."""
    with connection.cursor() as cursor:  # SQLite: the transaction holds the lock of the file
        if connection.vendor == "postgresql":
            cursor.execute("LOCK TABLE jobqueue_job IN ACCESS EXCLUSIVE MODE")


def test_a_hanging_heartbeat_a_drain_and_the_end_show_in_the_probes(workers: Workers, rival: Rival) -> None:
    heartbeat_seconds = 1.5
    short, job = workers.enqueue(tasks.work), workers.enqueue(tasks.wait, 60)
    worker = workers.start(*HTTP, LEASE_SECONDS=30, HEARTBEAT_SECONDS=heartbeat_seconds)
    port = port_of(worker)
    assert becomes(port, "/readyz", 200) == "ok\n"
    wait_for(short, "SUCCESS")
    wait_for(job, "RUNNING")
    assert ask(port, "/livez") == (200, "ok\n")
    threading.Event().wait(heartbeat_seconds)  # a lease is renewed only if it is older than half a heartbeat
    began = time.monotonic()
    with rival.transaction():
        rival.do(lock_table)
        assert "No heartbeat was written for" in becomes(port, "/livez", 503)
        assert time.monotonic() - began <= 2 * heartbeat_seconds + 0.5, "the lock, and the polls of this test, take their time, too"
        if connection.vendor == "postgresql":  # on SQLite, a claim that finds nothing only reads
            assert "has waited for the database" in becomes(port, "/readyz", 503)
    becomes(port, "/livez", 200)
    becomes(port, "/readyz", 200)
    drain_worker(worker.worker_id)
    assert becomes(port, "/readyz", 503) == "The worker is drained.\n"
    assert ask(port, "/livez")[0] == 200
    drain_worker(worker.worker_id, drained=False)
    becomes(port, "/readyz", 200)
    text = ask(port, "/metrics")[1]
    figures = {name: float(value) for name, value in re.findall(r'^jobqueue_worker_(\w+){process="1"} (\S+)$', text, re.MULTILINE)}
    assert (figures["slots"], figures["running_jobs"], figures["claimed_jobs_total"]) == (2, 1, 2)
    assert 'jobqueue_worker_ended_runs_total{process="1",status="SUCCESS"} 1.0' in text
    assert figures["statements_total"] > 5
    assert figures["leases_renewed_total"] >= 1
    worker.terminate()
    assert becomes(port, "/readyz", 503) == "The worker is ending.\n"
    assert ask(port, "/livez")[0] == 200
    worker.terminate()
    assert worker.wait() == 0


def test_a_port_that_is_taken_and_a_wrong_address_are_errors_at_the_start(workers: Workers) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        workers_of = [workers.start("--http", given) for given in (address, "8080")]
        assert [worker.wait() for worker in workers_of] == [1, 1]
    assert f"--http {address} cannot be used: Address already in use. Choose another port" in workers_of[0].text
    assert "--http is '8080'; it must be an address and a port" in workers_of[1].text


def test_the_parent_process_shows_its_workers_and_is_alive_as_long_as_one_of_them_is(workers: Workers) -> None:
    parent = workers.start("--processes", "2", *HTTP, HEARTBEAT_SECONDS=1, LEASE_SECONDS=60)  # else it kills them meanwhile
    port, pids = port_of(parent), [pid for _, _, pid in sorted(serving(parent, 2))]
    becomes(port, "/readyz", 200)
    wait_until(lambda: ask(port, "/metrics")[1].count("jobqueue_worker_slots{") == 2, "both workers have sent their figures")
    os.kill(pids[0], signal.SIGSTOP)
    drain_worker(next(str(row.pk) for row in Worker.objects.all() if row.pid == pids[1]))
    assert "Worker process 2: The worker is drained." in becomes(port, "/readyz", 503)
    assert ask(port, "/livez")[0] == 200, "one of the two workers is alive"
    os.kill(pids[1], signal.SIGSTOP)
    text = becomes(port, "/livez", 503)
    assert re.search(r"Worker process 1: It has not responded for \S+ s\.\nWorker process 2: It has not responded for \S+ s\.", text)
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    becomes(port, "/livez", 200)
    parent.terminate()
    assert parent.wait() == 0


@pytest.mark.parametrize("options", [(), ("--processes", "1")])
def test_systemd_is_notified_of_the_start_of_life_and_of_the_end(workers: Workers, tmp_path: Path, options: Any) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(20)
        environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "600000"}
        job = workers.enqueue(tasks.wait, 60)
        worker = workers.start(*options, environment=environment)
        assert b"READY=1" in _until(manager, b"READY=1")
        assert b"WATCHDOG=1" in _until(manager, b"WATCHDOG=1")
        wait_for(job, "RUNNING")
        worker.terminate()
        assert b"STOPPING=1" in _until(manager, b"STOPPING=1")
        worker.terminate()
        assert worker.wait() == 0


def _until(manager: socket.socket, message: bytes) -> list[bytes]:
    found = [manager.recv(4096)]
    while found[-1] != message:
        found.append(manager.recv(4096))
    return found
