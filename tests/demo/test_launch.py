"""The parts of the demo's program."""

import os
import signal
import socket
import sys
import threading
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model

from demo_project.launch import prepare, watch
from demo_project.launch.batch import Group
from demo_project.launch.children import Child
from demo_project.launch.enqueue import enqueue
from demo_project.launch.site import Site
from demo_project.launch.stop import Stop, Stopped
from demo_project.launch.watch import Ended, Kind
from jobqueue import clock, request_job_cancel
from jobqueue.models import Job
from tests.faults.harness import wait_until

# Two processes of one group that ignore SIGTERM; the second says when both are ready.
STUBBORN = """
import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    print("ready", os.getpid(), flush=True)
signal.pause()
"""


@pytest.fixture
def stop() -> Iterator[Stop]:
    """Take over the signals for the time of a test."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    # Under nohup a hang-up is ignored, and in the background of a shell an interrupt.
    before = {number: signal.signal(number, signal.SIG_DFL) for number in numbers}
    stop = Stop()
    stop.listen()
    yield stop
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_next_wait(stop: Stop, number: signal.Signals) -> None:
    stop.check()
    os.kill(os.getpid(), number)
    with pytest.raises(Stopped):
        stop.wait()
    assert not stop.urgent


def test_a_second_signal_cuts_a_step_short_unless_that_would_leave_a_process_behind(stop: Stop) -> None:
    with stop.whole():
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGINT)
    assert stop.urgent
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
    stop.keep_whole()
    os.kill(os.getpid(), signal.SIGINT)


def child(code: str, tmp_path: Path) -> Child:
    """Start a Python process that runs `code`."""
    return Child([sys.executable, "-u", "-c", code], tmp_path / "log", tmp_path)


def ready(log: Path) -> list[int]:
    """Wait for the line that a child prints, and return the process ids in it."""
    waiting = threading.Event()
    for _ in range(200):
        if log.exists() and "\n" in (text := log.read_text()):
            return [int(word) for word in text.split() if word.isdigit()]
        waiting.wait(0.05)
    raise AssertionError("the child did not start")


def gone(pid: int) -> bool:
    """Return whether a process has ended, reaped or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_child_is_asked_to_end_before_it_is_killed(tmp_path: Path, stop: Stop) -> None:
    polite = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)); print('ready', flush=True); signal.pause()"
    process = child(polite, tmp_path)
    ready(process.log)
    process.end(stop)
    assert process.code == 7


def test_a_child_that_does_not_end_is_killed_with_its_whole_group(tmp_path: Path, stop: Stop) -> None:
    process = child(STUBBORN, tmp_path)
    (grandchild,) = ready(process.log)
    assert not gone(grandchild)
    process.end(stop, grace=0.2)
    assert process.code == -signal.SIGKILL
    wait_until(lambda: gone(grandchild), "the kernel has taken the second process away, too")


def test_a_second_signal_ends_the_wait(tmp_path: Path, stop: Stop) -> None:
    process = child(STUBBORN, tmp_path)
    ready(process.log)
    with stop.whole():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        process.end(stop, grace=3600)
    assert process.code == -signal.SIGKILL


def test_a_child_is_out_of_reach_of_the_terminals_ctrl_c(tmp_path: Path, stop: Stop) -> None:
    process = child("import signal; print('ready', flush=True); signal.pause()", tmp_path)
    assert os.getpgid(process.pid) == process.pid != os.getpgid(0)
    process.end(stop)


def test_the_site_takes_the_next_free_port_and_gives_it_back(settings: Any) -> None:
    settings.WSGI_APPLICATION = None
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        site = Site(port)
        try:
            assert port < int(site.url.rstrip("/").rpartition(":")[2]) <= port + 50
            with urllib.request.urlopen(f"{site.url}admin/login/") as response:  # noqa: S310 - an address of the test's own server
                assert response.status == 200
        finally:
            site.end()
    again = Site(port)
    assert again.url == f"http://127.0.0.1:{port}/"
    again.end()


@pytest.mark.django_db
def test_the_admins_password_is_made_once_and_kept_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "admin-password"
    password = prepare.admin_password(path)
    assert len(password) >= 16
    assert path.stat().st_mode & 0o777 == 0o600
    assert prepare.admin_password(path) == password
    user = get_user_model().objects.get()
    assert user.is_superuser
    assert user.check_password(password)


@pytest.mark.django_db
def test_an_admin_of_another_data_folder_gets_the_password_of_this_one(tmp_path: Path) -> None:
    prepare.admin_password(tmp_path / "first")
    password = prepare.admin_password(tmp_path / "second")
    assert get_user_model().objects.get().check_password(password)


GROUPS = [
    Group("rebuild_search", (((), {"seconds": 1.0}),)),
    Group("index_module", ((("json",), {"pause": 0.1}), (("html",), {"pause": 0.1}))),
    Group("make_cover", ((("json",), {"pause": 0.1}),)),
]


@pytest.mark.django_db
def test_a_batch_is_enqueued_in_order_and_found_again() -> None:
    ids, left = enqueue(GROUPS)
    assert (sorted(ids), left) == (ids, 0)
    assert [watch.short(Job.objects.get(pk=pk).task) for pk in ids] == ["rebuild_search", "index_module", "index_module", "make_cover"]
    assert enqueue(GROUPS) == (ids, 4)


@pytest.mark.django_db
def test_a_paused_job_is_resumed_with_the_next_batch() -> None:
    ids, _ = enqueue(GROUPS)
    request_job_cancel(ids[0])
    request_job_cancel(ids[1], outcome=Job.Status.CANCELED)
    again, left = enqueue(GROUPS)
    assert (again[0], again[1] == ids[1], left) == (ids[0], False, 3)
    assert Job.objects.get(pk=ids[0]).status == Job.Status.QUEUED


@pytest.mark.django_db
def test_a_snapshot_counts_only_the_jobs_of_the_batch() -> None:
    ids, _ = enqueue(GROUPS)
    enqueue([Group("make_cover", ((("html",), {}),))])
    request_job_cancel(ids[1], outcome=Job.Status.CANCELED)
    snapshot = watch.look(ids)
    assert snapshot.kinds == {"index_module": Kind(waiting=1, canceled=1), "make_cover": Kind(waiting=1), "rebuild_search": Kind(waiting=1)}
    assert (snapshot.all.total, snapshot.all.open, snapshot.running) == (4, 3, [])
    assert [(job.kind, job.status) for job in watch.ended(ids)][1] == ("index_module", "CANCELED")


@pytest.mark.django_db
def test_a_snapshot_distinguishes_running_from_claimed_jobs() -> None:
    ids, _ = enqueue(GROUPS)
    now = clock.now()
    lease = {"status": Job.Status.RUNNING, "lease_owner": "w", "lease_expires_at": now, "heartbeat_at": now}
    Job.objects.filter(pk__in=ids[:3]).update(**lease)
    Job.objects.filter(pk=ids[1]).update(started_at=now - timedelta(seconds=5), progress=40, message="reading", attempt=2)
    Job.objects.filter(pk=ids[3]).update(status=Job.Status.PENDING, waiting_for="time", run_at=clock.now(), failures=1)
    snapshot = watch.look(ids)
    assert snapshot.kinds["index_module"] == Kind(waiting=1, running=1)
    assert snapshot.kinds["rebuild_search"] == Kind(waiting=1)
    assert snapshot.kinds["make_cover"] == Kind(retrying=1)
    (running,) = snapshot.running
    assert (running.job_id, running.kind, running.about, running.progress, running.attempt) == (ids[1], "index_module", "json", 40, 2)
    assert 5 <= running.seconds < 60


@pytest.mark.parametrize(
    ("kind", "status", "unexpected"),
    [
        ("broken_parser", "ERROR", False),
        ("broken_parser", "SUCCESS", True),
        ("export_archive", "CANCELED", False),
        ("export_archive", "SUCCESS", True),
        ("index_module", "SUCCESS", False),
        ("index_module", "ERROR", True),
        ("rebuild_search", "CANCELED", False),
        ("rebuild_search", "PAUSED", False),
    ],
)
def test_unexpected_ends_are_distinguished_from_those_by_an_operator(kind: str, status: str, unexpected: bool) -> None:
    assert Ended(1, kind, status, 0, 1.0).unexpected is unexpected
