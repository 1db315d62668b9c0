"""The system checks: each one reports its fault, names the fix, and is silent on a project without the fault."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import run_checks
from django.db import connections

from jobqueue import checks
from jobqueue.models import Queue

GOOD_SQLITE = {"transaction_mode": "IMMEDIATE", "init_command": "PRAGMA journal_mode=WAL"}


class Router:
    """Route everything to one database."""

    def __init__(self, alias: str) -> None:
        self.alias = alias

    def db_for_write(self, model: object, **hints: object) -> str:
        return self.alias


@pytest.fixture
def job_database(settings: Any, django_db_blocker: Any) -> Iterator[Any]:
    """Return a function that adds a database to the project and routes the jobs to it."""
    added = []

    def add(alias: str, engine: str, options: Mapping[str, Any], name: str = ":memory:") -> None:
        entry = {"ENGINE": engine, "NAME": name, "OPTIONS": dict(options)}
        connections.settings[alias] = connections.configure_settings({"default": {}, alias: entry})[alias]
        settings.DATABASE_ROUTERS = [Router(alias)]
        added.append(alias)

    with django_db_blocker.unblock():
        yield add
        for alias in added:
            raw = connections[alias].connection
            connections[alias].close()
            if raw is not None:
                raw.close()  # Django leaves a database in memory open
            del connections[alias]
            del connections.settings[alias]


def ids(messages: list[Any]) -> list[str]:
    """Return the ids of check messages, each of which must name a fix."""
    assert all(message.hint for message in messages)
    return [message.id for message in messages]


def test_the_test_project_has_no_fault() -> None:
    assert ids(checks.check_settings()) == []
    assert ids(checks.check_backend()) == []
    assert ids(checks.check_database()) == []


def test_every_problem_of_the_settings_is_reported_as_an_error(settings: Any) -> None:
    settings.JOBQUEUE = {"LEASE_SECOND": 3, "MAX_WORKERS": 0, "HEARTBEAT_SECONDS": 20}
    found = [message for message in run_checks() if message.id.startswith("jobqueue.E")]
    assert ids(found) == ["jobqueue.E001", "jobqueue.E002", "jobqueue.E004"]
    assert found[0].msg == "Unknown setting 'LEASE_SECOND' in JOBQUEUE."
    assert found[0].hint == "Did you mean LEASE_SECONDS?"


@pytest.mark.django_db
def test_a_database_that_is_not_in_databases_is_named_and_stops_no_other_check(settings: Any) -> None:
    settings.JOBQUEUE, settings.DATABASE_ROUTERS = {**settings.JOBQUEUE, "DATABASE": "jbos"}, ["jobqueue.routers.JobQueueRouter"]
    found = [message for message in run_checks(databases=["default"]) if message.id.startswith("jobqueue.E")]
    assert ids(found) == ["jobqueue.E002"]
    assert found[0].msg == "DATABASE is 'jbos'."


def test_settings_that_are_no_dict_are_reported_once(settings: Any) -> None:
    settings.JOBQUEUE = ["MAX_WORKERS"]
    found = [message.id for message in run_checks() if message.id.startswith("jobqueue.")]
    assert found == ["jobqueue.E005"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (GOOD_SQLITE, []),
        ({}, ["jobqueue.W001", "jobqueue.W002"]),
        ({**GOOD_SQLITE, "transaction_mode": None}, ["jobqueue.W001"]),
        ({**GOOD_SQLITE, "transaction_mode": "DEFERRED"}, ["jobqueue.W001"]),
        ({**GOOD_SQLITE, "transaction_mode": "immediate"}, []),
        ({**GOOD_SQLITE, "transaction_mode": "EXCLUSIVE"}, []),
        ({**GOOD_SQLITE, "init_command": "PRAGMA journal_mode = 'wal'; PRAGMA synchronous=NORMAL;"}, []),
        ({**GOOD_SQLITE, "init_command": "pragma journal_mode(wal)"}, []),
        ({**GOOD_SQLITE, "init_command": "PRAGMA synchronous=NORMAL"}, ["jobqueue.W002"]),
        ({**GOOD_SQLITE, "init_command": "PRAGMA journal_mode=DELETE"}, ["jobqueue.W002"]),
        ({**GOOD_SQLITE, "init_command": None}, ["jobqueue.W002"]),
    ],
)
def test_sqlite_without_immediate_transactions_or_wal_is_reported(job_database: Any, options: dict[str, Any], expected: list[str]) -> None:
    job_database("lite", "django.db.backends.sqlite3", options)
    assert ids(checks.check_database()) == expected


@pytest.mark.parametrize(
    ("pool", "workers", "size"),
    [(True, 8, 4), ({"max_size": 8}, 8, 8), ({"min_size": 2}, 8, 2), ({"min_size": 3, "max_size": None}, 8, 3), (True, 4, 4)],
)
def test_a_pool_smaller_than_the_slots_is_reported_with_both_numbers(
    settings: Any, job_database: Any, pool: Any, workers: int, size: int
) -> None:
    settings.JOBQUEUE = {"MAX_WORKERS": workers}
    job_database("pooled", "django.db.backends.postgresql", {"pool": pool}, "jobs")
    (message,) = checks.check_database()
    assert message.id == "jobqueue.W004"
    assert message.msg == f"The pool of the database 'pooled' has max_size {size}; {workers} jobs at a time need {workers + 1}."
    assert message.hint == f'Set OPTIONS["pool"] = {{"max_size": {workers + 1}}} or more, or lower MAX_WORKERS to {size - 1}.'


@pytest.mark.parametrize("pool", [None, False, {}, {"max_size": 9}, {"min_size": 9}, {"min_size": 1, "max_size": 20}])
def test_no_pool_and_a_large_one_are_no_fault(job_database: Any, pool: Any) -> None:
    job_database("pooled", "django.db.backends.postgresql", {"pool": pool}, "jobs")
    assert ids(checks.check_database()) == []


def test_the_pool_is_not_judged_by_settings_that_are_wrong_themselves(settings: Any, job_database: Any) -> None:
    settings.JOBQUEUE = {"MAX_WORKERS": "8"}
    job_database("pooled", "django.db.backends.postgresql", {"pool": True}, "jobs")
    assert ids(checks.check_database()) == []


def test_another_kind_of_database_is_an_error(job_database: Any) -> None:
    job_database("other", "django.db.backends.dummy", {})
    assert ids(checks.check_database()) == ["jobqueue.E006"]
    assert checks.check_journal_mode(databases=["other"]) == []


@pytest.mark.parametrize(("mode", "expected"), [("DELETE", ["jobqueue.W003"]), ("WAL", [])])
def test_a_file_that_really_is_not_in_wal_mode_is_reported(job_database: Any, tmp_path: Path, mode: str, expected: list[str]) -> None:
    job_database("lite", "django.db.backends.sqlite3", {"init_command": f"PRAGMA journal_mode={mode}"}, str(tmp_path / "jobs.sqlite3"))
    found = [message for message in run_checks(tags=["database"], databases=["lite"]) if message.id.startswith("jobqueue.")]
    assert ids(found) == expected
    assert all("'lite' is in journal mode 'delete'" in message.msg for message in found)


def test_the_file_is_not_opened_unless_the_check_asks_for_its_database(job_database: Any, tmp_path: Path) -> None:
    path = tmp_path / "jobs.sqlite3"
    job_database("lite", "django.db.backends.sqlite3", {}, str(path))
    assert checks.check_journal_mode(databases=["default"]) == []
    assert checks.check_journal_mode(databases=None) == []
    assert ids(checks.check_database()) == ["jobqueue.W001", "jobqueue.W002"]
    assert not path.exists()


def test_a_database_in_memory_has_no_journal_to_report(job_database: Any) -> None:
    job_database("lite", "django.db.backends.sqlite3", GOOD_SQLITE)
    assert checks.check_journal_mode(databases=["lite"]) == []


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [
        ({}, ["jobqueue.W005"]),
        ({"default": {"BACKEND": "django.core.mail.backends.smtp.EmailBackend"}}, ["jobqueue.W005"]),
        ({"default": {"BACKEND": "no.such.Backend"}}, ["jobqueue.W005"]),
        ({"default": {"BACKEND": "jobqueue.backends.registry"}}, ["jobqueue.W005"]),
        ({"default": {"BACKEND": "no.such.Backend"}, "jobs": {"BACKEND": "jobqueue.backends.DatabaseBackend"}}, []),
        ({"default": {"BACKEND": "jobqueue.testing.ImmediateBackend"}}, []),
    ],
)
def test_a_project_whose_tasks_never_become_jobs_is_warned(settings: Any, tasks: dict[str, Any], expected: list[str]) -> None:
    settings.TASKS = tasks
    assert ids(checks.check_backend()) == expected


def test_a_subclass_of_the_backend_counts(settings: Any) -> None:
    from jobqueue.backends import DatabaseBackend

    global Subclass  # noqa: PLW0603
    Subclass = type("Subclass", (DatabaseBackend,), {})
    settings.TASKS = {"default": {"BACKEND": f"{__name__}.Subclass"}}
    assert ids(checks.check_backend()) == []


@pytest.mark.parametrize("name", ["TENANTS", "TENANT_CONTEXT"])
@pytest.mark.parametrize(("path", "said"), [("no.such.thing", "No module named 'no'"), ("jobqueue.conf.nothing", '"nothing"')])
def test_a_path_of_tenants_that_leads_to_nothing_is_an_error(settings: Any, name: str, path: str, said: str) -> None:
    settings.JOBQUEUE = {name: path}
    [message] = [message for message in run_checks() if message.id.startswith("jobqueue.")]
    assert (message.id, ids([message])) == ("jobqueue.E008", ["jobqueue.E008"])
    assert message.msg.startswith(f"{name} is {path!r}, which cannot be imported: ")
    assert said in message.msg


def test_paths_of_tenants_that_lead_somewhere_and_callables_are_no_fault(settings: Any) -> None:
    for values in (
        {"TENANTS": "builtins.dict", "TENANT_CONTEXT": "contextlib.nullcontext"},
        {"TENANTS": dict, "TENANT_CONTEXT": print},
        {},
    ):
        settings.JOBQUEUE = values
        assert ids(checks.check_tenants()) == []
    settings.JOBQUEUE = {"TENANTS": 3}
    assert ids(checks.check_tenants()) == [], "check_settings reports it"


@pytest.mark.parametrize(
    ("size", "lower"), [(14, None), (13, "MAX_WORKERS to 7."), (7, "MAX_WORKERS to 1."), (6, "MAX_WORKERS and the numbers of TENANTS.")]
)
def test_the_slots_of_tenants_need_connections_too(settings: Any, job_database: Any, size: int, lower: str | None) -> None:
    settings.JOBQUEUE = {"MAX_WORKERS": 8, "TENANTS": {"acme": 3, "globex": 2}}
    job_database("pooled", "django.db.backends.postgresql", {"pool": {"max_size": size}}, "jobs")
    found = checks.check_database()
    assert ids(found) == (["jobqueue.W004"] if lower else [])
    for message in found:
        assert f"has max_size {size}; 13 jobs at a time need 14." in message.msg
        assert message.hint == f'Set OPTIONS["pool"] = {{"max_size": 14}} or more, or lower {lower}'


def test_slots_of_tenants_that_only_a_callable_knows_are_not_asked_for_by_the_check(settings: Any, job_database: Any) -> None:
    def ask() -> dict[str, int]:
        raise AssertionError("the database may not be there yet")

    settings.JOBQUEUE = {"TENANTS": ask}
    job_database("pooled", "django.db.backends.postgresql", {"pool": {"max_size": 9}}, "jobs")
    assert ids(checks.check_database()) == []


def test_webhooks_that_would_be_sent_unsigned_are_reported_at_a_deployment(settings: Any) -> None:
    settings.JOBQUEUE = {}
    [found] = checks.check_webhook_secret()
    assert (found.id, "whsec_" in (found.hint or "")) == ("jobqueue.W006", True)
    settings.JOBQUEUE = {"WEBHOOK_SECRET": "whsec_" + "c2VjcmV0" * 4}
    assert checks.check_webhook_secret() == []


@pytest.mark.django_db
def test_a_queue_with_a_webhook_that_cannot_be_sent_from_here_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = Queue.objects.create(name="default", webhook_url="https://hooks.example/")
    assert checks.check_webhooks(["default"]) == []
    monkeypatch.setitem(sys.modules, "httpx", None)
    [found] = checks.check_webhooks(["default"])
    assert (found.id, "httpx cannot be imported" in found.msg) == ("jobqueue.W007", True)
    assert checks.check_webhooks([]) == []
    queue.delete()
    assert checks.check_webhooks(["default"]) == []
