"""Settings of the tests: on the embedded PostgreSQL; ``TEST_PGBOUNCER=1``: through a pooler; ``TEST_DATABASE=sqlite``: on SQLite.

``TEST_USE_TZ=0`` and ``TEST_TIME_ZONE=Asia/Shanghai`` set Django's settings of these names.
"""

import os
from pathlib import Path
from typing import Any

import django

from demo_project import embedded
from tests import pooler

SECRET_KEY = "only for tests"  # noqa: S105
USE_TZ = os.environ.get("TEST_USE_TZ", "1") != "0"
TIME_ZONE = os.environ.get("TEST_TIME_ZONE", "UTC")
DEBUG = False
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "tests.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
STATIC_URL = "static/"
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "jobqueue",
    "demo_project.library",
    "demo_project.receiver",
    "demo_project.workload",
    "tests",
    "tests.shop",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
TASKS = {
    "default": {"BACKEND": "jobqueue.backends.DatabaseBackend", "QUEUES": []},
    "immediate": {"BACKEND": "jobqueue.testing.ImmediateBackend", "QUEUES": []},
    "dummy": {"BACKEND": "jobqueue.testing.DummyBackend", "QUEUES": []},
}
# A fast hasher: the strength of passwords does not matter in tests.
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
JOBQUEUE: dict[str, Any] = {}
if django.VERSION >= (6, 1):
    MAILERS = {"default": {"BACKEND": "django.core.mail.backends.locmem.EmailBackend"}}

# With a name of its own, each of several runs can use the same server.
NAME = os.environ.get("TEST_DATABASE_NAME", "jobqueue")
SQLITE = os.environ.get("TEST_DATABASE", "postgresql") == "sqlite"


def sqlite(path: Path) -> dict[str, Any]:
    """Return a ``DATABASES`` entry for one SQLite file in WAL mode."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": path,
        "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 20, "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF"},
        "TEST": {"NAME": str(path.with_suffix(".test.sqlite3"))},
    }


def postgresql() -> dict[str, Any]:
    """Return a ``DATABASES`` entry for the suite's own server, which waits for no disk: its data need not outlive the machine."""
    import psycopg

    entry = embedded.database(NAME, embedded.DATA / "tests")
    with psycopg.connect(host=entry["HOST"], user=entry["USER"], dbname="postgres", autocommit=True) as connection:
        if connection.execute("SHOW fsync").fetchone() == ("on",):
            for name in ("fsync", "full_page_writes", "synchronous_commit"):
                connection.execute(f"ALTER SYSTEM SET {name} = off")
            connection.execute("SELECT pg_reload_conf()")
    return {**entry, "CONN_MAX_AGE": None}


DATABASES = {"default": sqlite(embedded.DATA / f"{NAME}.sqlite3") if SQLITE else postgresql()}
if pooler.POOLED:
    DATABASES["default"] = pooler.in_front_of(DATABASES["default"])
