"""The links between ended jobs and the jobs that run them again."""

from django.db import models

from jobqueue.models.job import Job


class JobRerun(models.Model):
    """A job that was enqueued as a copy of an ended job. The database does not check the foreign keys, as for events."""

    id = models.BigAutoField(primary_key=True)
    original = models.ForeignKey(Job, models.CASCADE, related_name="reruns", db_constraint=False, db_index=False)
    copy = models.ForeignKey(Job, models.CASCADE, related_name="originals", db_constraint=False, db_index=False)

    class Meta:
        ordering = ("id",)
        default_permissions = ()
        constraints = (models.UniqueConstraint(fields=["copy"], name="jobqueue_rerun_copy"),)
        indexes = (models.Index(fields=["original", "id"], name="jobqueue_rerun_original"),)

    def __str__(self) -> str:
        return f"job {self.copy_id} runs job {self.original_id} again"
