"""Tasks that leave their connection in a bad state, each followed by a harmless one in the same thread."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from django.db import connection

from jobqueue.models import Job, Worker
from tests.faults import leftovers, tasks
from tests.faults.harness import Workers, wait_for
from tests.faults.witness import Witness

# The tests read what the scene has kept; the mark sees to it that there is a database for the scene.
pytestmark = [pytest.mark.faults, pytest.mark.django_db]

BAD: dict[str, tuple[Any, str]] = {
    "atomic left open": (leftovers.leave_atomic_open, "SUCCESS"),
    "autocommit off": (leftovers.autocommit_off, "SUCCESS"),
    "raw BEGIN": (leftovers.raw_begin, "SUCCESS"),
    "swallowed IntegrityError": (leftovers.swallow_integrity_error, "ERROR"),
    "closed inside atomic": (leftovers.close_inside_atomic, "ERROR"),
    "connection lost": (leftovers.lose_connection, "ERROR"),
    "connection lost quietly": (leftovers.lose_connection_quietly, "SUCCESS"),
}
ROLLED_BACK = {"left open", "autocommit off", "raw begin", "closed inside"}


@dataclass
class Scene:
    """What became of the bad and of the harmless."""

    witness: Witness
    bad: dict[str, Job] = field(default_factory=dict)
    harmless: dict[str, Job] = field(default_factory=dict)
    rows: set[str] = field(default_factory=set)
    exit_code: int = -1
    said: str = ""


@pytest.fixture(scope="module")
def scene(shared_workers: Workers) -> Scene:
    """Run them all, one after the other, in one thread."""
    seen = Scene(shared_workers.witness)
    pairs = {name: (task.enqueue(), tasks.write.enqueue(f"after {name}")) for name, (task, _) in BAD.items()}
    worker = shared_workers.start(MIN_WORKERS=1, MAX_WORKERS=1).ready()
    for name, (bad, harmless) in pairs.items():
        seen.bad[name] = wait_for(bad, "SUCCESS", "ERROR", seconds=30)
        seen.harmless[name] = wait_for(harmless, "SUCCESS", "ERROR", seconds=30)
    seen.rows = set(Worker.objects.values_list("host", flat=True))
    seen.exit_code = worker.stop()
    seen.said = worker.text_without_failures
    return seen


@pytest.mark.parametrize("name", BAD)
def test_the_job_is_settled_whatever_state_its_connection_is_in(scene: Scene, name: str) -> None:
    job = scene.bad[name]
    if name == "connection lost" and connection.vendor == "sqlite":
        assert job.status == "SUCCESS"  # there is no server to end the session
    else:
        assert job.status == BAD[name][1], job.message
    assert (job.attempt, job.lease_owner) == (1, "")
    assert job.status == "SUCCESS" or job.message


@pytest.mark.parametrize("name", BAD)
def test_the_next_job_in_the_thread_finds_a_sound_connection_and_its_row_is_committed(scene: Scene, name: str) -> None:
    job = scene.harmless[name]
    assert job.status == "SUCCESS", job.message
    assert job.result is True, "it found itself in autocommit, outside of any transaction"
    assert f"after {name}" in scene.rows


def test_writes_that_a_task_left_uncommitted_are_rolled_back(scene: Scene) -> None:
    assert not ROLLED_BACK & scene.rows


def test_the_true_error_is_kept(scene: Scene) -> None:
    assert "TransactionManagementError" in scene.bad["swallowed IntegrityError"].message


def test_the_worker_ends_in_order(scene: Scene) -> None:
    assert scene.exit_code == 0
    assert "Traceback" not in scene.said
