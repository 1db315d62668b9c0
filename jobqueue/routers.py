"""The database router for jobs that have a database of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db.utils import DEFAULT_DB_ALIAS

from jobqueue import conf

if TYPE_CHECKING:
    from django.db.models import Model

APP = "jobqueue"


class JobQueueRouter:
    """Send the models of jobqueue, and nothing else, to the database that ``JOBQUEUE["DATABASE"]`` names.

    Where it names none, nothing is decided here. The methods return None for what other routers, or Django, are to decide.
    """

    def db_for_read(self, model: type[Model], **hints: Any) -> str | None:
        """Return the alias for a model of ours."""
        return conf.job_alias() if model._meta.app_label == APP else None

    def db_for_write(self, model: type[Model], **hints: Any) -> str | None:
        """Return the alias for a model of ours."""
        return conf.job_alias() if model._meta.app_label == APP else None

    def allow_relation(self, one: Model, other: Model, **hints: Any) -> bool | None:
        """Allow relations among our models; those to others only where both may lie in one database."""
        ours = [model._meta.app_label == APP for model in (one, other)]
        if all(ours):
            return True
        return False if any(ours) and conf.job_alias() not in (None, DEFAULT_DB_ALIAS) else None

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        """Let our tables be made there and nowhere else, and no others there, unless it is the project's main database."""
        alias = conf.job_alias()
        if alias is None:
            return None
        if app_label == APP:
            return db == alias
        return False if db == alias != DEFAULT_DB_ALIAS else None
