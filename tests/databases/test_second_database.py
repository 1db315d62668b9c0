"""The jobs have a database of their own: every feature works there, and no statement uses another database.

The project is that of `tests.databases.settings`, played by `scene` in a process of its own: with an SQLite main database that has no
table of jobqueue (so that a stray statement fails), and with two PostgreSQL databases and a copy that is never updated.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.checks import Error
from django.db import connection

from jobqueue import checks, conf
from jobqueue.models import Job
from jobqueue.routers import JobQueueRouter
from tests.faults.harness import ROOT

ROUTER = "jobqueue.routers.JobQueueRouter"


@pytest.fixture(scope="module")
def make(django_db_setup: Any, django_db_blocker: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Return a function that makes an empty database: on the server of the tests, or (`file`) an SQLite file."""
    made: list[str] = []

    def database(alias: str, *, file: bool = False) -> dict[str, Any]:
        if file or connection.vendor == "sqlite":
            path = tmp_path_factory.mktemp("databases") / f"{alias}.sqlite3"
            options = {"transaction_mode": "IMMEDIATE", "timeout": 20, "init_command": "PRAGMA journal_mode=WAL"}
            return {"ENGINE": "django.db.backends.sqlite3", "NAME": str(path), "OPTIONS": options, "TEST": {"NAME": f"{path}.test"}}
        settings = connection.settings_dict
        made.append(f"{settings['NAME']}_{alias}_{len(made)}")
        connection.cursor().execute(f"CREATE DATABASE {made[-1]}")
        return {"ENGINE": settings["ENGINE"], "NAME": made[-1], "USER": settings["USER"], "HOST": settings["HOST"]}

    with django_db_blocker.unblock():
        yield database
        for name in made:
            connection.cursor().execute(f"DROP DATABASE {name} WITH (FORCE)")


def django_command(*command: str, databases: dict[str, Any], router: str = ROUTER) -> subprocess.CompletedProcess[str]:
    """Run Python with the project's settings."""
    values = {"DJANGO_SETTINGS_MODULE": "tests.databases.settings", "SCENE_DATABASES": json.dumps(databases), "SCENE_ROUTER": router}
    return subprocess.run(
        [sys.executable, *command], cwd=ROOT, env={**os.environ, **values}, capture_output=True, text=True, timeout=180, check=False
    )


def play(databases: dict[str, Any], router: str = ROUTER) -> dict[str, Any]:
    """Play the scene and return its report."""
    done = django_command("-m", "tests.databases.scene", databases=databases, router=router)
    assert done.returncode == 0, done.stdout + done.stderr
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert report["failed"] == {}, "\n".join(report["failed"].values()) + done.stderr[-4000:]
    return report


def ours(names: list[str]) -> set[str]:
    """Return the tables of jobqueue among these."""
    return {name for name in names if name.startswith("jobqueue_")}


def others(names: list[str]) -> set[str]:
    """Return the other tables, but for Django's own record of migrations."""
    return {name for name in names if not name.startswith("jobqueue_")} - {"django_migrations"}


def judge(report: dict[str, Any]) -> None:
    """Check that each database has its own tables and got only its own statements."""
    models = {model._meta.db_table for model in checks.apps.get_app_config("jobqueue").get_models()}
    assert ours(report["tables"]["default"]) == set()
    assert ours(report["asked"]["default"]) == set()
    assert {"auth_user", "django_admin_log", "django_session", "auth_group"} <= set(report["written"]["default"])
    assert models <= ours(report["tables"]["jobs"])
    assert others(report["tables"]["jobs"]) == set()
    assert others(report["asked"]["jobs"]) == set()
    assert models - ours(report["written"]["jobs"]) <= {"jobqueue_bulkaction"}


@pytest.mark.slow
def test_every_feature_works_beside_a_main_database_without_our_tables(make: Any) -> None:
    judge(play({"default": make("main", file=True), "jobs": make("jobs")}))


@pytest.mark.slow
def test_decisions_are_made_where_jobs_are_written_though_reads_go_to_a_stale_copy(make: Any) -> None:
    databases = {"default": make("main"), "jobs": make("jobs"), "replica": make("replica")}
    report = play(databases, "tests.databases.routers.ReplicaRouter")
    judge(report)
    assert report["readers"] == ["admin"], "only the pages of the admin are read there"
    assert report["written"].get("replica", []) == []


@pytest.mark.slow
def test_a_projects_own_tests_name_both_databases(make: Any) -> None:
    databases = {"default": make("main", file=True), "jobs": make("jobs")}
    done = django_command("-m", "django", "test", "tests.databases.cases", "--noinput", databases=databases)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Ran 2 tests" in done.stderr


@pytest.mark.long
def test_no_worker_starts_where_the_router_is_missing(make: Any) -> None:
    databases = {"default": make("main", file=True), "jobs": make("jobs", file=True)}
    done = django_command("-m", "django", "runworkers", databases=databases, router="")
    assert done.returncode == 1
    assert "jobqueue.E010" in done.stderr
    assert "Put 'jobqueue.routers.JobQueueRouter' first" in done.stderr


# The router and the checks


class Elsewhere:
    """Write some models elsewhere."""

    def db_for_write(self, model: Any, **hints: Any) -> str | None:
        return "other" if model._meta.model_name in ("queue", "worker") else None


@pytest.fixture
def jobs_database(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Give the project a second database, which nothing connects to."""
    monkeypatch.setitem(settings.DATABASES, "jobs", {**settings.DATABASES["default"]})
    settings.JOBQUEUE = {**settings.JOBQUEUE, "DATABASE": "jobs"}
    return settings


def test_the_router_sends_our_models_there_and_nothing_else(jobs_database: Any) -> None:
    from django.contrib.auth.models import User

    router = JobQueueRouter()
    assert (router.db_for_read(Job), router.db_for_write(Job)) == ("jobs", "jobs")
    assert (router.db_for_read(User), router.db_for_write(User)) == (None, None)
    assert router.allow_migrate("jobs", "jobqueue", model_name="job") is True
    assert router.allow_migrate("default", "jobqueue") is False
    assert router.allow_migrate("jobs", "auth") is False
    assert router.allow_migrate("default", "auth") is None
    assert router.allow_relation(Job(), Job()) is True
    assert router.allow_relation(Job(), User()) is False
    assert router.allow_relation(User(), User()) is None


def test_the_router_decides_nothing_where_no_database_is_named(settings: Any) -> None:
    router = JobQueueRouter()
    assert (router.db_for_read(Job), router.db_for_write(Job), router.allow_migrate("default", "jobqueue")) == (None, None, None)
    assert router.allow_relation(Job(), Job()) is True


def test_the_router_does_not_concern_the_main_database(settings: Any) -> None:
    settings.JOBQUEUE = {"DATABASE": "default"}
    router = JobQueueRouter()
    assert router.allow_migrate("default", "auth") is None
    assert router.allow_migrate("other", "jobqueue") is False


def reported() -> list[tuple[str, str]]:
    """Return what the check of routes reports; each message names a fix."""
    found = checks.check_routes()
    assert all(isinstance(one, Error) and "JobQueueRouter" in str(one.hint) for one in found)
    return [(str(one.id), one.msg) for one in found]


def test_a_missing_router_is_reported(jobs_database: Any) -> None:
    [(number, message)] = reported()
    assert number == "jobqueue.E010"
    assert "DATABASE is 'jobs', but DATABASE_ROUTERS send" in message
    assert "Job, " in message
    assert "to 'default'" in message
    jobs_database.DATABASE_ROUTERS = [ROUTER]
    assert reported() == []


def test_models_in_different_databases_are_reported_even_if_no_database_is_named(settings: Any) -> None:
    settings.DATABASE_ROUTERS = [Elsewhere()]
    [(number, message)] = reported()
    assert number == "jobqueue.E010"
    assert "Worker to 'other'" in message or "Queue, Worker" in message or "Worker, Queue" in message


def test_a_router_that_allows_no_tables_is_reported(jobs_database: Any) -> None:
    class Strict:
        def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool:
            return db == "default"

    jobs_database.DATABASE_ROUTERS = [Strict(), ROUTER]
    [(_, message)] = reported()
    assert "do not allow the tables of jobqueue" in message


def test_an_unknown_alias_is_refused_with_the_fix(settings: Any) -> None:
    settings.JOBQUEUE = {"DATABASE": "jbos"}
    [problem] = conf.problems(settings.JOBQUEUE)
    assert problem.id == "E002"
    assert "'jbos'" in problem.message
    assert "alias of a database in DATABASES" in problem.hint
