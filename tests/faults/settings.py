"""Settings of the worker processes that the fault tests start; the environment says what differs (see `harness`)."""

import json
import os
import socket
from typing import Any

SECRET_KEY = "only for tests"  # noqa: S105
USE_TZ = os.environ.get("TEST_USE_TZ", "1") != "0"
TIME_ZONE = os.environ.get("TEST_TIME_ZONE", "UTC")
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["django.contrib.auth", "django.contrib.contenttypes", "jobqueue", "tests", "tests.faults", "tests.shop"]
DATABASES: dict[str, Any] = {"default": json.loads(os.environ["FAULTS_DATABASE"])}
TASKS = {"default": {"BACKEND": "jobqueue.backends.DatabaseBackend", "QUEUES": []}}
JOBQUEUE: dict[str, Any] = {"TASK_MODULES": ["tests.faults.tasks", "tests.faults.leftovers"], **json.loads(os.environ["FAULTS_JOBQUEUE"])}

if "FAULTS_TWIN" in os.environ:
    # As in two containers: the host name is fixed, and the pid is the same every time.
    socket.gethostname = lambda: "twin"
    os.getpid = lambda: 7
