"""The database router for jobs that have a database of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db.utils import DEFAULT_DB_ALIAS

from jobqueue import conf

if TYPE_CHECKING:
    from django.db.models import Model

APP = "jobqueue"


class JobQueueRouter:
    """A router that sends only the models of jobqueue to the database that ``JOBQUEUE["DATABASE"]`` names.

    If it names none, the methods return None, as they do for all decisions of other routers or of Django.
    """

    def db_for_read(self, model: type[Model], **hints: Any) -> str | None:
        """Return the alias for a model of jobqueue."""
        return conf.job_alias() if model._meta.app_label == APP else None

    def db_for_write(self, model: type[Model], **hints: Any) -> str | None:
        """Return the alias for a model of jobqueue."""
        return conf.job_alias() if model._meta.app_label == APP else None

    def allow_relation(self, one: Model, other: Model, **hints: Any) -> bool | None:
        """Allow relations between models of jobqueue; allow those to other models only if both can be in one database."""
        of_jobqueue = [model._meta.app_label == APP for model in (one, other)]
        if all(of_jobqueue):
            return True
        return False if any(of_jobqueue) and conf.job_alias() not in (None, DEFAULT_DB_ALIAS) else None

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        """Allow the tables of jobqueue only in its database; allow other tables there only if it is the main database."""
        alias = conf.job_alias()
        if alias is None:
            return None
        if app_label == APP:
            return db == alias
        return False if db == alias != DEFAULT_DB_ALIAS else None
