"""A module of tasks that fails at import stops nothing else: the worker logs it, reports it, and runs all other jobs."""

import pytest
from django.core.management import call_command

from jobqueue.insight.problems import problems
from jobqueue.models import Job, Worker
from tests.faults import tasks
from tests.faults.harness import Workers, row, wait_for, wait_until

pytestmark = [pytest.mark.faults, pytest.mark.django_db(transaction=True)]

MODULES = ["tests.faults.broken", "tests.faults.not_there", "tests.faults.tasks"]


def test_a_module_that_fails_at_import_is_logged_reported_and_skipped(workers: Workers) -> None:
    lost = tasks.one_argument.enqueue(1)
    Job.objects.filter(pk=lost.job_id).update(task="tests.faults.broken.declared_before")  # this process must not import it
    good = tasks.one_argument.enqueue(1)
    worker = workers.start(TASK_MODULES=MODULES).ready()
    wait_for(good, "SUCCESS")
    waiting = wait_for(lost, "PENDING")
    assert "No task is registered as 'tests.faults.broken.declared_before'" in waiting.message
    shown = wait_until(Worker.objects.first, "the worker has its row")
    assert set(shown.failed_modules) == {"tests.faults.broken", "tests.faults.not_there"}
    found = [one.text for one in problems() if one.code == "failed_module" and "tests.faults.broken" in one.text]
    assert len(found) == 1
    assert "hunter2" not in found[0]
    assert worker.stop() == 0
    assert "Cannot import tests.faults.broken: this process runs without" in worker.text
    assert "Traceback" in worker.text
    assert row(lost).attempt == 0


def test_a_strict_worker_ends(workers: Workers) -> None:
    good = tasks.one_argument.enqueue(1)
    worker = workers.start("--strict", TASK_MODULES=MODULES)
    assert worker.wait() != 0
    assert "no such module" in worker.text
    assert row(good).status == "QUEUED"


def test_the_deploy_check_names_the_module(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from jobqueue.declared import imports

    monkeypatch.setitem(imports._failures, "shop.tasks", "builtins.RuntimeError: no")
    call_command("check", "--deploy")
    assert "shop.tasks cannot be imported: builtins.RuntimeError: no" in capsys.readouterr().err
