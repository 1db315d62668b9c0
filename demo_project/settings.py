"""The settings of the demo site. ``DATABASE_URL`` names the database; without it, an embedded PostgreSQL is started."""

import base64
import os
import secrets
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import django
import environ
from django.core.exceptions import ImproperlyConfigured
from django.core.management.utils import get_random_secret_key

from demo_project import embedded

env = environ.Env()
BASE_DIR = embedded.CHECKOUT
DATA = embedded.DATA  # all files that the demo writes; DEMO_DATA_DIR moves them
DATA.mkdir(parents=True, exist_ok=True)


def kept(path: Path, make: Callable[[], str]) -> str:
    """Return the secret in `path`, created on first use: it survives a restart, and is not in the repository."""
    if not path.exists():
        with tempfile.NamedTemporaryFile("w", dir=path.parent) as file:  # readable only by its owner
            file.write(make())
            file.flush()
            with suppress(FileExistsError):  # another process was first: its key counts
                os.link(file.name, path)
    return path.read_text()


def webhook_secret() -> str:
    """Return a new secret, in the form of Standard Webhooks."""
    return f"whsec_{base64.b64encode(secrets.token_bytes(32)).decode()}"


def database() -> dict[str, Any]:
    """Return the ``DATABASES`` entry for ``DATABASE_URL``.

    A pair of servers is written ``postgres://user@host1:5432,host2:5432/name?target_session_attrs=read-write``
    (docs/databases.md).
    """
    if not env.str("DATABASE_URL", default=""):
        config: dict[str, Any] = embedded.database("demo", DATA / "postgres")
    else:
        config = dict(env.db_url("DATABASE_URL"))
    if config["ENGINE"].endswith("sqlite3"):
        if config["NAME"] == ":memory:":
            raise ImproperlyConfigured(
                "DATABASE_URL names a database in memory, which no worker process can see: name a file, as in sqlite:///demo.sqlite3"
            )
        config["NAME"] = str(BASE_DIR / config["NAME"])
        # With IMMEDIATE and WAL, several writers can wait for each other; by default, a transaction that reads
        # first and writes later fails.
        config["OPTIONS"] = {"transaction_mode": "IMMEDIATE", "timeout": 20, "init_command": "PRAGMA journal_mode=WAL"}
    return {**config, "CONN_MAX_AGE": 60, "CONN_HEALTH_CHECKS": True}


SECRET_KEY = env.str("SECRET_KEY", default="") or kept(DATA / "secret-key", get_random_secret_key)
DEBUG = env.bool("DEBUG", default=False)
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["127.0.0.1", "localhost", "[::1]"])
DATABASES = {"default": database()}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

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
    "demo_project.shop",
    "demo_project.workload",
]
TASKS = {
    "default": {
        "BACKEND": "jobqueue.backends.DatabaseBackend",
        "QUEUES": ["index", "covers", "reports", "mail", "catalogue", "shop"],
    }
}
# A short lease: after `kill -9` of the worker, its jobs are recovered in ten seconds instead of thirty.
# Webhooks go to the demo's own receiver, on this machine; a real site would allow no loopback addresses.
WEBHOOK_SECRET = env.str("WEBHOOK_SECRET", default="") or kept(DATA / "webhook-secret", webhook_secret)
JOBQUEUE: dict[str, Any] = {"LEASE_SECONDS": 10, "WEBHOOK_SECRET": WEBHOOK_SECRET, "WEBHOOK_ALLOWED_HOSTS": ["127.0.0.1"]}

ROOT_URLCONF = "demo_project.urls"
WSGI_APPLICATION = "demo_project.wsgi.application"
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
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

LANGUAGE_CODE = "en-us"
TIME_ZONE = "UTC"
USE_TZ = True
STATIC_URL = "static/"
MEDIA_URL = "media/"
MEDIA_ROOT = DATA / "media"
if django.VERSION >= (6, 1):
    MAILERS = {"default": {"BACKEND": "django.core.mail.backends.filebased.EmailBackend", "OPTIONS": {"file_path": str(DATA / "mail")}}}
else:
    EMAIL_BACKEND = "django.core.mail.backends.filebased.EmailBackend"
    EMAIL_FILE_PATH = DATA / "mail"
# Django enables INFO for no logger of a project; these lines are stored with the runs of the jobs.
LOGGING = {"version": 1, "disable_existing_loggers": False, "loggers": {"demo_project": {"level": "INFO"}}}
DEFAULT_FROM_EMAIL = "library@example.org"
# Names of its own: other projects on localhost share the cookies.
SESSION_COOKIE_NAME = "jobqueue_demo_session"
CSRF_COOKIE_NAME = "jobqueue_demo_csrf"
