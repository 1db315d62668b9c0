from pathlib import Path

import pytest

from jobqueue.worker.process.identity import Identity

pytestmark = [pytest.mark.sqlite, pytest.mark.django_db]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the locks beside a file of the test's own."""
    from jobqueue.db.sqlite import SQLite

    monkeypatch.setattr(SQLite, "file", tmp_path / "db.sqlite3")


def dies(identity: Identity) -> None:
    """Lose the lock as the kernel takes it from a dead process: the file stays."""
    assert identity._held is not None
    identity._held.close()


def test_the_dead_are_found_once_and_the_living_never() -> None:
    me, living, dead = Identity(), Identity(), Identity()
    for one in (me, living, dead):
        one.hold()
    assert me.dead_neighbours() == []
    dies(dead)
    assert me.dead_neighbours() == [dead.worker_id]
    assert me.dead_neighbours() == []
    living.release()
    me.release()


def test_one_that_ended_in_order_is_not_dead() -> None:
    me, other = Identity(), Identity()
    me.hold()
    other.hold()
    other.release()
    assert me.dead_neighbours() == []
    me.release()


def test_a_worker_that_is_about_to_take_its_lock_is_not_taken_for_dead(tmp_path: Path) -> None:
    me = Identity()
    me.hold()
    draft = tmp_path / "db.sqlite3.workers" / ".somebody"
    draft.touch()
    assert me.dead_neighbours() == []
    assert draft.exists()
    me.release()


def test_two_identities_of_one_process_differ() -> None:
    assert Identity().worker_id != Identity().worker_id
