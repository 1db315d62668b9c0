"""The check of a transactional task's database: its work must be in the database of the jobs."""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.db import router
from django.db.utils import DEFAULT_DB_ALIAS

from jobqueue.exceptions import InvalidOption


def check_place(task: Any) -> None:
    """Reject a transactional task if the jobs have a database of their own: all of its work would be in another database."""
    from jobqueue.models import Job  # a task is declared before the models are loaded

    alias = Job.objects.database.alias
    if alias == DEFAULT_DB_ALIAS:
        return
    models = (model for model in apps.get_models() if model._meta.app_label != Job._meta.app_label)
    if not any(router.db_for_write(model) == alias for model in models):
        raise InvalidOption(
            f"{task.module_path} has transactional=True, but the jobs are in the database {alias!r} and no other model "
            f"is, so its work and the end of its job cannot be one transaction. Leave it out and make the task "
            f"idempotent, or keep the jobs in its database."
        )
