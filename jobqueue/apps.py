"""The application's configuration."""

import importlib

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _

from jobqueue.core import early

if early.is_first_worker():  # importing the other apps takes most of the time of a start
    early.end_on_signals()


class JobQueueConfig(AppConfig):
    """The configuration of the app, which registers models, checks and log receivers, and starts nothing."""

    name = "jobqueue"
    verbose_name = _("Job queue")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Give `Job` what its methods call, and import the modules that register themselves.

        The module `signals` of django.tasks also registers its check and its log receivers.
        """
        from jobqueue import compat, receivers
        from jobqueue.insight import report
        from jobqueue.lifecycle import control
        from jobqueue.models import Job

        Job.control, Job.reports = control, report
        importlib.import_module("jobqueue.checks")
        # Imported here, because the first enqueue of each process would wait for the import.
        importlib.import_module("jobqueue.lifecycle.enqueue")
        compat.module("signals")
        compat.module("checks")
        receivers.connect()
