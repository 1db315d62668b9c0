"""Django settings of the measured processes: all defaults, and no log line per job."""

import os

SECRET_KEY = "only for measurements"  # noqa: S105
USE_TZ = True
INSTALLED_APPS = ["jobqueue"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": os.environ.get("PGDATABASE", "postgres"),
        "USER": os.environ.get("PGUSER", "postgres"),
        "HOST": os.environ.get("PGHOST", ""),
        "CONN_MAX_AGE": None,
    }
}
TASKS = {"default": {"BACKEND": "jobqueue.backends.DatabaseBackend", "QUEUES": []}}
EVENT_LOG = "BENCH_EVENT_LOG"
JOBQUEUE = {"TASK_MODULES": ["bench.tasks"], "EVENT_LOG": os.environ.get(EVENT_LOG)}
if every := os.environ.get("BENCH_HEARTBEAT"):
    JOBQUEUE["HEARTBEAT_SECONDS"] = float(every)
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"console": {"class": "logging.StreamHandler"}},
    "root": {"handlers": ["console"], "level": "WARNING"},
}
