"""Build the package, and check it as a user gets it: its contents, its description, and an installation that runs a job."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
IN_SDIST = (
    "CHANGELOG.md",
    "LICENSE",
    "Makefile",
    "docs/settings.md",
    "tests/conftest.py",
    "tests/factories.py",
    "demo_project/settings.py",
)
IN_WHEEL = (
    "jobqueue/py.typed",
    "jobqueue/locale/ar/LC_MESSAGES/django.mo",
    "jobqueue/static/jobqueue/admin.css",
    "jobqueue/templates/jobqueue/admin/job.html",
)
SETTINGS = """
SECRET_KEY = "x"
INSTALLED_APPS = ["django.contrib.auth", "django.contrib.contenttypes", "jobqueue", "shop"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "db.sqlite3",
    "OPTIONS": {"transaction_mode": "IMMEDIATE", "init_command": "PRAGMA journal_mode=WAL"}}}
TASKS = {"default": {"BACKEND": "jobqueue.backends.DatabaseBackend", "QUEUES": []}}
"""
TASKS = "from jobqueue import task\n\n\n@task\ndef add(a, b):\n    return a + b\n"
RUN = (
    "import django; django.setup(); from shop.tasks import add; from django.core.management import call_command as call;"
    "call('migrate', verbosity=0); call('check', fail_level='WARNING'); found = add.enqueue(2, 3); call('runworkers', once=True);"
    "found.refresh(); assert found.return_value == 5, found"
)


def main() -> None:
    """Build, check and install; end with the first thing that is wrong."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "dist"
        run(sys.executable, "-m", "build", "--outdir", str(out), str(ROOT))
        [sdist], [wheel] = out.glob("*.tar.gz"), out.glob("*.whl")
        run(sys.executable, "-m", "twine", "check", "--strict", str(sdist), str(wheel))
        contents(sdist, wheel)
        install(wheel, Path(folder))
    print("The package is whole, and what is installed from it runs a job.")


def contents(sdist: Path, wheel: Path) -> None:
    """Refuse archives that lack a file or have one too many, and a description with relative links."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    missing = [name for name in IN_SDIST if name not in names]
    with zipfile.ZipFile(wheel) as archive:
        found = set(archive.namelist())
        [metadata] = [name for name in found if name.endswith("/METADATA")]
        description = archive.read(metadata).decode()
    missing += [name for name in IN_WHEEL if name not in found]
    strange = [name for name in found if not name.startswith(("jobqueue/", "jobqueue-"))]
    relative = re.findall(r"\]\((?!https?:|#)[^)]*\)", description)
    if missing or strange or relative or "Project-URL: Source" not in description:
        sys.exit(f"Missing: {missing}. Not of the package: {strange}. Relative links: {relative}.")


def install(wheel: Path, folder: Path) -> None:
    """Install the wheel into a clean environment, and run a job in a project that has nothing else."""
    venv.create(folder / "venv", with_pip=True)
    python = str(folder / "venv" / "bin" / "python")
    extra = "[backport]" if sys.version_info >= (3, 12) else ""
    run(python, "-m", "pip", "install", "-qq", "--disable-pip-version-check", f"{wheel}{extra}")
    project = folder / "project"
    (project / "shop").mkdir(parents=True)
    (project / "shop" / "__init__.py").touch()
    (project / "shop" / "tasks.py").write_text(TASKS)
    (project / "settings.py").write_text(SETTINGS)
    run(python, "-c", RUN, cwd=project, env={**os.environ, "DJANGO_SETTINGS_MODULE": "settings", "PYTHONPATH": str(project)})


def run(*command: str, **options: object) -> None:
    """Run a program for at most five minutes; end if it fails."""
    print("+", *command[:4], flush=True)
    if code := subprocess.run(command, check=False, timeout=300, **options).returncode:  # type: ignore[call-overload]
        sys.exit(f"It failed with {code}.")


if __name__ == "__main__":
    main()
