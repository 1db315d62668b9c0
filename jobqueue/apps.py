"""The application's configuration."""

import importlib

from django.apps import AppConfig


class JobQueueConfig(AppConfig):
    """Register models, checks and log receivers; start nothing."""

    name = "jobqueue"
    verbose_name = "Job queue"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Import what registers itself; importing django.tasks' signals also brings its own check and log receivers."""
        from jobqueue import compat, receivers

        importlib.import_module("jobqueue.checks")
        compat.module("signals")
        compat.module("checks")
        receivers.connect()
