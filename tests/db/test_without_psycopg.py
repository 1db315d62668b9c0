"""A project on SQLite needs no PostgreSQL driver."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys
sys.modules["psycopg"] = None
import django
from django.conf import settings
databases = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": sys.argv[1]}}
tasks = {"default": {"BACKEND": "jobqueue.backends.DatabaseBackend", "QUEUES": []}}
settings.configure(
    SECRET_KEY="a test",
    INSTALLED_APPS=["jobqueue"],
    DATABASES=databases, TASKS=tasks, JOBQUEUE={"TASK_MODULES": ["bench.tasks"]}, USE_TZ=True
)
django.setup()
from django.core.management import call_command
call_command("migrate", verbosity=0)
from bench.tasks import noop
noop.enqueue(1)
call_command("runworkers", "--once")
from jobqueue.models import Job
print(Job.objects.get().status)
"""


@pytest.mark.long
def test_a_project_on_sqlite_works_without_it(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "db.sqlite3")], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.splitlines()[-1:] == ["SUCCESS"], done.stderr
