"""Tasks that are declared elsewhere than in `tasks.py`: found when a job names them, in an installed app and nowhere else."""

import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.test import override_settings

from jobqueue import enqueue_job
from jobqueue.declared import imports, registry
from jobqueue.models import Job, JobEvent
from jobqueue.testing import run_until_idle
from tests.tasks_layer.samples import plain

MODULE = "tests.shop.jobs"


@pytest.fixture(autouse=True)
def _unimported() -> Iterator[None]:
    """Begin as a process that has not imported the module; forget what a test has imported."""
    _forget()
    yield
    _forget()


def _forget() -> None:
    sys.modules.pop(MODULE, None)
    registry._tried_modules.clear()
    for path in registry.paths():
        if path.startswith((f"{MODULE}.", "elsewhere.")):
            registry.forget(path)


def _make(path: str, value: int = 7) -> Job:
    """Make a job as another process does, which knows the task."""
    job = Job.objects.get(pk=plain.enqueue(value).job_id)
    Job.objects.filter(pk=job.pk).update(task=path)
    return job


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", ["found_late", "afound_late"])
def test_a_worker_imports_the_module_of_a_job_below_an_installed_app(name: str) -> None:
    job = _make(f"{MODULE}.{name}")
    run_until_idle()
    job.refresh_from_db()
    assert (job.status, job.result, job.attempt) == ("SUCCESS", 7, 1)


@pytest.mark.django_db
def test_an_enqueue_by_path_has_the_options_of_the_declaration() -> None:
    assert Job.objects.get(pk=enqueue_job(f"{MODULE}.found_late", 1).job_id).max_attempts == 3


@pytest.mark.django_db
def test_no_other_module_is_imported_and_the_text_names_the_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere.py").write_text("raise AssertionError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    job = _make("elsewhere.work")
    run_until_idle()
    job.refresh_from_db()
    assert job.status == "PENDING"
    assert "name its module in TASK_MODULES. A job waits for its task for UNKNOWN_TASK_GRACE_SECONDS." in job.message
    assert "elsewhere" not in sys.modules
    assert "elsewhere" not in imports.failures()


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["tests.shop.not_there.work", "tests.not_there.at.all.work", "tests.shop.jobs.not_there", "tests.work"])
def test_a_missing_function_is_an_unknown_task_and_no_failure_of_a_module(path: str) -> None:
    before = imports.failures()
    job = _make(path)
    run_until_idle()
    job.refresh_from_db()
    assert job.status == "PENDING"
    assert "No task is registered as" in job.message
    assert imports.failures() == before


@pytest.mark.django_db
def test_a_module_below_one_of_the_setting_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "elsewhere"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "mail.py").write_text("from jobqueue import task\n@task\ndef send(): return 'sent'\n")
    monkeypatch.syspath_prepend(tmp_path)
    with override_settings(JOBQUEUE={"TASK_MODULES": ["elsewhere"]}):
        job = _make("elsewhere.mail.send")
        Job.objects.update(args=[])
        run_until_idle()
    job.refresh_from_db()
    assert (job.status, job.result) == ("SUCCESS", "sent")
    for name in ("elsewhere", "elsewhere.mail"):
        del sys.modules[name]


@pytest.mark.django_db
def test_the_tries_of_an_unknown_task_are_logged_once_a_minute_with_their_pause_and_have_one_event(
    caplog: pytest.LogCaptureFixture,
) -> None:
    job = _make("elsewhere.work")
    with caplog.at_level(logging.INFO, "jobqueue"):
        for _ in range(3):
            run_until_idle(scheduled=True, limit=1)
    lines = [record.getMessage() for record in caplog.records if f"Job {job.pk} " in record.getMessage()]
    [line] = lines  # once a minute
    assert "PENDING" in line
    assert "next run in 5.0 s" in line
    assert JobEvent.objects.filter(job=job, name="job.handed_back").count() == 1
