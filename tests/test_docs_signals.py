"""The page on signals: what it says of mails."""

import subprocess
import sys
from pathlib import Path

import pytest

from jobqueue import compat

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "signals.md").read_text()
BLOCK = PAGE.partition("```python\nLOGGING = ")[2].partition("```")[0]
PROGRAM = """
import django
from django.conf import settings
from django.core import mail
settings.configure(
    ADMINS=["ops@example.com"] if django.VERSION >= (6, 0) else [("ops", "ops@example.com")],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    EMAIL_BACKEND="django.core.mail.backends.locmem.EmailBackend",
    INSTALLED_APPS=["jobqueue"],
    LOGGING=%s,
    SECRET_KEY="only-for-this-test",
    TASKS={"default": {"BACKEND": "jobqueue.testing.ImmediateBackend"}},
    USE_TZ=True,
)
django.setup()
mail.outbox = []
from failing import fails
fails.enqueue()
print(len(mail.outbox))
"""
FAILING = """
from jobqueue import task

@task
def fails():
    raise ValueError("no")
"""


@pytest.mark.long
@pytest.mark.parametrize(("logging", "mails"), [(BLOCK, 1), ("{}", 0 if compat.PACKAGE == "django_tasks" else 1)], ids=["page", "default"])
def test_a_failed_run_is_one_mail_with_the_logging_of_the_page(tmp_path: Path, logging: str, mails: int) -> None:
    (tmp_path / "failing.py").write_text(FAILING)
    environment = {"PYTHONPATH": f"{tmp_path}:{ROOT}"}
    command = [sys.executable, "-c", PROGRAM % logging.strip()]
    done = subprocess.run(command, check=False, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout.split()[-1:] == [str(mails)], done.stderr
