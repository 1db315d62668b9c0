"""Settings of a project whose jobs have a database of their own; the environment says which databases there are."""

import json
import os
from typing import Any

import django

from tests.webhooks.receivers import SECRET

SECRET_KEY = "only for tests"  # noqa: S105
USE_TZ = True
TIME_ZONE = "UTC"
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "tests.databases.urls"
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
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
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
if django.VERSION >= (6, 1):
    MAILERS = {"default": {"BACKEND": "django.core.mail.backends.locmem.EmailBackend"}}
TASKS = {"default": {"BACKEND": "jobqueue.backends.DatabaseBackend", "QUEUES": []}}
DATABASES: dict[str, Any] = json.loads(os.environ["SCENE_DATABASES"])
DATABASE_ROUTERS = os.environ["SCENE_ROUTER"].split()
JOBQUEUE: dict[str, Any] = {
    "DATABASE": "jobs",
    "TASK_MODULES": ["tests.databases.tasks"],
    "MAX_WORKERS": 4,
    "LEASE_SECONDS": 4,
    "HEARTBEAT_SECONDS": 1,
    "SHUTDOWN_GRACE_PERIOD_SECONDS": 0,
    "QUEUE_RETENTION": {"short": {"STALE_AFTER": 0, "DELETE_AFTER": 1}},
    "WEBHOOK_SECRET": SECRET,
    "WEBHOOK_ALLOWED_HOSTS": ["127.0.0.1"],
}
