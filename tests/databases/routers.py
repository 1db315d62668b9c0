"""A router of a project that reads the admin's pages from a copy of the jobs' database."""

from __future__ import annotations

from typing import Any

from jobqueue.routers import APP, JobQueueRouter


class ReplicaRouter(JobQueueRouter):
    """Read from the alias ``replica``, and write as the shipped router says."""

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        return "replica" if model._meta.app_label == APP else None

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        return app_label == APP if db == "replica" else super().allow_migrate(db, app_label, **hints)
