"""The application's configuration."""

import importlib

from django.apps import AppConfig

from jobqueue.core import early

if early.is_first_worker():  # the other apps take most of the time of a start
    early.end_on_signals()


class JobQueueConfig(AppConfig):
    """Register models, checks and log receivers; start nothing."""

    name = "jobqueue"
    verbose_name = "Job queue"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Import what registers itself; importing django.tasks' signals also brings its own check and log receivers."""
        from jobqueue import compat, receivers

        importlib.import_module("jobqueue.checks")
        importlib.import_module("jobqueue.lifecycle.enqueue")  # here, or the first enqueue of each process waits for it
        compat.module("signals")
        compat.module("checks")
        receivers.connect()
