"""The database is a pair of servers: the primary dies under load, the standby takes over, and each is read-only for a while (PostgreSQL).

One scene is played on two servers of the test's own with synchronous replication, so that what is committed is on both. Two workers
know both servers, by a URL with two hosts; a third reaches them through a proxy that for a while leads to the standby. A process that
enqueues all the time records the answer for each job.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import environ
import pytest

from jobqueue.duties.builtin import builtin
from tests.faults.harness import ROOT, WorkerProcess, Workers, wait_until
from tests.faults.server import Proxy, Server
from tests.faults.test_outage import thread_count
from tests.faults.together import play
from tests.faults.witness import Witness

pytestmark = [pytest.mark.faults, pytest.mark.postgresql, pytest.mark.django_db, pytest.mark.slow(seconds=60)]

RESUMED_IN_SECONDS = 15
READ_ONLY_SECONDS = 6
SETTINGS: dict[str, Any] = {"LEASE_SECONDS": 15, "HEARTBEAT_SECONDS": 1, "MIN_WORKERS": 3, "MAX_WORKERS": 3}
READ_ONLY = "read-only"


@dataclass
class Scene:
    """What became of the workers and of the jobs."""

    witness: Witness
    told: list[dict[str, Any]] = field(default_factory=list)
    jobs: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    at: dict[str, float] = field(default_factory=dict)
    threads: dict[str, list[int]] = field(default_factory=dict)
    services: list[dict[str, Any]] = field(default_factory=list)
    said: dict[str, str] = field(default_factory=dict)
    exit_codes: dict[str, int] = field(default_factory=dict)
    long: dict[str, int] = field(default_factory=dict)
    duties: dict[str, bool] = field(default_factory=dict)

    @property
    def acknowledged(self) -> set[int]:
        """The jobs whose callers got the answer that they are enqueued."""
        return {one["id"] for one in self.told if "id" in one}

    def note(self, what: str) -> float:
        """Keep when something happened."""
        self.at[what] = time.monotonic()
        return self.at[what]


class Enqueuer:
    """Run ``tests.faults.enqueuer``."""

    def __init__(self, path: Path, database: dict[str, Any]) -> None:
        """Start it; its output goes into a file."""
        values = {"DJANGO_SETTINGS_MODULE": "tests.faults.settings", "FAULTS_DATABASE": json.dumps(database), "FAULTS_JOBQUEUE": "{}"}
        self.path = path
        with path.open("wb") as output:
            command = [sys.executable, "-m", "tests.faults.enqueuer"]
            self.process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **values}, stdin=subprocess.PIPE, stdout=output)

    @property
    def told(self) -> list[dict[str, Any]]:
        """The answers that it has got so far."""
        return [json.loads(line) for line in self.path.read_text().splitlines()]

    def stop(self) -> list[dict[str, Any]]:
        """Wait for its end, and return its answers."""
        self.process.communicate(timeout=20)
        return self.told


@pytest.fixture
def scene(outcomes: dict[str, Any]) -> Scene:
    """Return what became of everything."""
    return outcomes["failover"].result()


@play
@pytest.mark.postgresql
def failover(workers: Workers) -> Scene:
    """Play the whole scene."""
    with ExitStack() as stack:
        primary = Server()
        stack.callback(primary.remove)
        primary.migrate()
        standby = Server(of=primary)
        stack.callback(standby.remove)
        primary.set("synchronous_standby_names", "*")
        wait_until(lambda: primary.run("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"), "the standby follows", 20)
        proxy = Proxy(primary.port)
        stack.callback(proxy.close)
        acts = Play(workers, primary, standby, proxy)
        stack.callback(acts.enqueuer.process.kill)
        return acts.all()


class Play:
    """The acts of the scene."""

    def __init__(self, workers: Workers, primary: Server, standby: Server, proxy: Proxy) -> None:
        """Start all processes."""
        workers.queue = ""
        self.workers, self.primary, self.standby, self.proxy = workers, primary, standby, proxy
        self.seen = Scene(workers.witness)
        both = environ.Env.db_url_config(
            f"postgres://postgres@127.0.0.1:{primary.port},127.0.0.1:{standby.port}/postgres?target_session_attrs=read-write"
        )
        self.crew: dict[str, WorkerProcess] = {}
        for name, database, queue in (
            ("one", both, "default"),
            ("two", {**both, "CONN_MAX_AGE": None}, "default"),
            ("behind a proxy", primary.entry(proxy.port, CONN_MAX_AGE=None), "proxied"),
        ):
            self.crew[name] = workers.start("--queues", queue, database=database, **SETTINGS).ready()
        self.enqueuer = Enqueuer(workers.directory / "told.jsonl", both)

    def all(self) -> Scene:
        """Play one act after the other."""
        seen = self.seen
        self.now = self.primary
        wait_until(lambda: len(self.enqueuer.told) > 20, "the load begins", 20)
        self.does_write("write")
        self.count_threads()
        self.lead_astray()
        self.lose_the_primary()
        self.forbid_writes()
        seen.told = self.enqueuer.stop()
        wait_until(self.all_ended, "every job has ended", 40)
        seen.jobs = self.now.jobs("status, target, attempt, crashes, message")
        self.count_threads()
        sql = "SELECT services FROM jobqueue_worker WHERE heartbeat_at > %s AND services <> '{}'"
        moment = self.now.run("SELECT now()")[0][0]
        wait_until(lambda: len(self.now.run(sql, [moment])) == len(self.crew), "every worker shows itself anew", 20)
        seen.services = [services for (services,) in self.now.run(sql, [moment])]
        seen.exit_codes = {name: worker.stop() for name, worker in self.crew.items()}
        seen.said = {name: worker.text for name, worker in self.crew.items()}
        return seen

    def does_write(self, what: str) -> None:
        """Check that a job of the worker behind the proxy can write, in each of its threads."""
        jobs = [self.now.enqueue("write", what, queue="proxied") for _ in range(6)]
        wait_until(lambda: all(self.now.jobs()[job] == ("SUCCESS",) for job in jobs), f"jobs behind the proxy write ({what})", 20)

    def all_ended(self) -> bool:
        """Whether every job has ended."""
        return {status for (status,) in self.now.jobs().values()} <= {"SUCCESS", "ERROR"}

    def count_threads(self) -> None:
        """Keep how many threads the workers have."""
        for name, worker in self.crew.items():
            self.seen.threads.setdefault(name, []).append(thread_count(worker.pid))

    def lead_astray(self) -> None:
        """Make the proxy forward to the standby for a while, and then only new connections to the primary."""
        worker, began = self.crew["behind a proxy"], time.monotonic()
        self.proxy.lead_to(self.standby.port)
        wait_until(lambda: READ_ONLY in worker.text, "the worker meets the standby")
        # One that a thread of a task meets, too: it must not keep that connection.
        job = self.primary.enqueue("write", "astray", queue="proxied", max_attempts=1)
        wait_until(lambda: time.monotonic() - began > READ_ONLY_SECONDS, "some time goes by")
        self.proxy.lead_to(self.primary.port, cut=False)
        wait_until(lambda: self.primary.jobs()[job][0] in ("SUCCESS", "ERROR"), "the worker continues", 20)
        self.does_write("back")

    def lose_the_primary(self) -> None:
        """Kill the primary, and promote the standby a while later."""
        self.seen.long = {name: self.primary.enqueue(name, 8) for name in ("work", "awork")}
        wait_until(lambda: set(self.seen.long.values()) <= set(self.seen.witness.starts()), "the long jobs run", 20)
        self.primary.kill()
        killed = self.seen.note("killed")
        wait_until(lambda: time.monotonic() - killed > 3, "some time goes by")
        self.standby.promote()
        self.now, promoted = self.standby, self.seen.note("promoted")
        self.proxy.lead_to(self.standby.port)
        first = self.now.enqueue("work")
        wait_until(lambda: self.now.jobs()[first] == ("SUCCESS",), "work is resumed", 30)
        self.seen.note("resumed")
        sys.stdout.write(f"Resumed after {self.seen.at['resumed'] - promoted:.1f} s.\n")
        again = self.now.enqueue("fail_once", max_attempts=2)  # its second run is up to a duty
        wait_until(lambda: self.now.jobs()[again] == ("SUCCESS",), "a job is tried again", 30)
        wait_until(lambda: self.any_told(promoted), "an enqueue succeeds", 30)
        self.does_write("after the failover")

    def any_told(self, since: float) -> bool:
        """Whether a caller got the answer since then that a job is enqueued."""
        return any(one["at"] > since and "id" in one for one in self.enqueuer.told)

    def forbid_writes(self) -> None:
        """Make the new primary read-only for a while, while a job runs and ends, and one reports progress."""
        self.seen.long["in the spell"] = self.now.enqueue("work", READ_ONLY_SECONDS / 2)
        self.seen.long["throughout"] = self.now.enqueue("work", 2 * READ_ONLY_SECONDS)
        wait_until(lambda: set(self.seen.long.values()) <= set(self.seen.witness.starts()), "the long jobs run", 20)
        self.now.set("default_transaction_read_only", "on")
        began = self.seen.note("read-only")
        wait_until(lambda: time.monotonic() - began > READ_ONLY_SECONDS, "some time goes by")
        self.seen.note("writes again")
        self.now.set("default_transaction_read_only", "off")
        moment = self.now.run("SELECT now()")[0][0]
        last = self.now.enqueue("work")
        wait_until(lambda: self.now.jobs()[last] == ("SUCCESS",), "work is resumed", 20)
        self.does_write("after the spell")
        sql = "SELECT job_name, coalesce(heartbeat_at > %s, false) FROM jobqueue_backgroundjoblease"
        wait_until(lambda: all(led for _, led in self.now.run(sql, [moment])), "every duty is led again", 30)
        self.seen.duties = dict(self.now.run(sql, [moment]))


def test_work_is_resumed_within_15_s_of_the_promotion(scene: Scene) -> None:
    assert scene.at["resumed"] - scene.at["promoted"] < RESUMED_IN_SECONDS


def test_no_job_is_lost_whose_caller_got_the_answer_that_it_is_enqueued(scene: Scene) -> None:
    assert len(scene.acknowledged) > 200
    assert {job: scene.jobs.get(job) for job in scene.acknowledged if scene.jobs.get(job, ("",))[0] != "SUCCESS"} == {}


def test_every_run_is_counted_and_none_was_lost(scene: Scene) -> None:
    starts = scene.witness.starts()
    ours = {job: row for job, row in scene.jobs.items() if job in starts}
    assert {job: (starts[job], row) for job, row in ours.items() if (starts[job], 0) != (row[2], row[3])} == {}
    assert {name: scene.jobs[job][0] for name, job in scene.long.items()} == dict.fromkeys(scene.long, "SUCCESS")


def test_no_two_jobs_of_a_target_ran_at_once(scene: Scene) -> None:
    lines = list(lines_of(scene))
    assert len(lines) == 3
    for target, spans in lines:
        overlaps = [(one, two) for one, two in itertools.pairwise(sorted(spans)) if two[0] < one[1]]
        assert overlaps == [], target
    assert scene.witness.overlaps() == []


def lines_of(scene: Scene) -> Iterator[tuple[str, list[tuple[float, float]]]]:
    """Return the targets with the times of their runs."""
    begun: dict[tuple[int, int], float] = {}
    spans: dict[str, list[tuple[float, float]]] = {}
    for event in scene.witness.events:
        target = scene.jobs[event.job][1]
        if target and event.what == "start":
            begun[event.job, event.attempt] = event.at
        elif target:
            spans.setdefault(target, []).append((begun[event.job, event.attempt], event.at))
    yield from spans.items()


def test_callers_that_enqueue_meanwhile_get_an_error_of_the_database(scene: Scene) -> None:
    failed = [one for one in scene.told if "error" in one]
    assert {one["module"] for one in failed} == {"django.db.utils"}
    assert {one["error"] for one in failed} <= {"OperationalError", "InternalError", "InterfaceError"}
    inside = {"killed": ("killed", "promoted"), "read-only": ("read-only", "writes again")}
    for name, (first, last) in inside.items():
        assert [one for one in failed if scene.at[first] < one["at"] < scene.at[last]], f"no caller got an answer while it was {name}"
    assert [one for one in scene.told if scene.at["read-only"] + 1 < one["at"] < scene.at["writes again"] and "id" in one] == []


def test_no_thread_is_gone(scene: Scene) -> None:
    # But for those of the duties: who leads them before need not lead them afterwards. And a slot's thread starts when it is needed.
    led = len(builtin(lambda: None, lambda lost: None, lambda: 0.0))
    for name, (before, after) in scene.threads.items():
        assert before - led <= after <= before + led + SETTINGS["MAX_WORKERS"], name
    assert len(scene.services) == 3
    for services in scene.services:
        assert {"dispatcher", "finisher", "heartbeat", "listener", "reporter", "maintenance", "duties", "scaler"} <= set(services)
        assert {name: one for name, one in services.items() if one["failures"]} == {}


def test_every_duty_is_led_again(scene: Scene) -> None:
    assert scene.duties
    assert all(scene.duties.values())


def test_the_workers_end_well(scene: Scene) -> None:
    assert set(scene.exit_codes.values()) == {0}, scene.exit_codes


def test_the_log_is_bounded_and_reports_no_fault_of_jobqueue(scene: Scene) -> None:
    for name, said in scene.said.items():
        lines = [line for line in said.splitlines() if "Job " not in line]
        assert len(lines) < 150, f"{name}: {Counter(line[24:60] for line in lines).most_common(10)}"
        ours = said.replace(_failed_tasks(said), "")
        assert "could not be stored" not in ours
        assert " ERROR The " not in ours, name


def _failed_tasks(said: str) -> str:
    return "\n".join(line for line in said.splitlines() if "astray" in line)
