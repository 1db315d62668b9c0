"""Tasks can be declared while Django loads the apps, before there are models: an app's `apps.py` may import its `tasks.py`."""

import subprocess
import sys
from pathlib import Path

import pytest

from jobqueue import compat

APPS = """
from django.apps import AppConfig

from early import duties, tasks


class EarlyConfig(AppConfig):
    name = "early"
"""
TASKS = """
from datetime import timedelta

from django.apps import apps
from %(package)s import task as djangos
from jobqueue import JobResult, JobTask, Retry, TaskContext, enqueue_job, enqueue_many, exponential, phase, pipeline, task
from jobqueue import run_schedule_now, schedule

assert not apps.apps_ready

@djangos(backend=%(backend)r, queue_name="mail", priority=3)
def by_django(): pass

@task(backend=%(backend)r, takes_context=True, target="a", timeout=timedelta(seconds=5), backoff=exponential(), metadata={"a": 1})
def by_us(context: TaskContext): pass

@task(backend=%(backend)r, transactional=True)
def whole(): pass

@task(backend=%(backend)r)
async def coroutine(): pass

def first(context): pass

@pipeline(phases=[phase("one")(first)], backend=%(backend)r)
def steps(context): pass

schedule("nightly", by_django, cron="0 2 * * *")
schedule("often", "early.tasks.whole", interval=60, queue_name="mail", priority=3, tenant="one", target="a", args=[1])

later = by_us.using(priority=7, run_after=timedelta(seconds=5))
"""
DUTIES = """
from jobqueue import duty, duty_transaction

@duty(name="early", interval=60)
def early(): pass
"""
PROGRAM = """
import django
from django.conf import settings
settings.configure(
    INSTALLED_APPS=["early.apps.EarlyConfig", "jobqueue"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    TASKS={%(backend)r: {"BACKEND": %(path)r, "QUEUES": []}, "default": {"BACKEND": %(path)r}},
    USE_TZ=True,
)
django.setup()
from jobqueue.declared import registry
print(*registry.paths())
"""


@pytest.mark.long
@pytest.mark.parametrize(
    "path", ["jobqueue.backends.DatabaseBackend", "jobqueue.testing.ImmediateBackend", "jobqueue.testing.DummyBackend"]
)
def test_an_apps_module_imports_tasks(tmp_path: Path, path: str) -> None:
    package = tmp_path / "early"
    package.mkdir()
    values = {"package": compat.PACKAGE, "backend": "jobs", "path": path}
    for name, text in {"__init__": "", "apps": APPS, "tasks": TASKS % values, "duties": DUTIES}.items():
        (package / f"{name}.py").write_text(text)
    command = [sys.executable, "-c", PROGRAM % values]
    root = Path(__file__).parent.parent.parent
    environment = {"PYTHONPATH": f"{tmp_path}:{root}"}
    done = subprocess.run(command, check=False, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [f"early.tasks.{name}" for name in ("by_django", "by_us", "coroutine", "steps", "whole")]


LOADED = """
import sys
import django
from django.conf import settings
settings.configure(
    INSTALLED_APPS=["jobqueue"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    USE_TZ=True,
)
django.setup()
sys.exit("jobqueue.lifecycle.enqueue" not in sys.modules)
"""


@pytest.mark.long
def test_the_start_imports_what_the_first_enqueue_needs(tmp_path: Path) -> None:
    root = Path(__file__).parent.parent.parent
    command = [sys.executable, "-c", LOADED]
    subprocess.run(command, check=True, cwd=tmp_path, env={"PYTHONPATH": str(root)}, timeout=60)
