"""The audit: one row for each change that a user or an operator has made, written in the transaction of the change."""

from django.db import models
from django.utils.translation import gettext_lazy as _

from jobqueue.db import MomentField, Now
from jobqueue.models import fields


class AuditRecord(fields.Row):
    """Who changed what, when, and how: in the admin, over REST, on the command line, or by a bulk action.

    `name` is the name of the user, or of the system user who ran a command; `actor` is its full form in the log. The
    object is stored as text, because it can be deleted since.
    """

    id = models.BigAutoField(primary_key=True)
    at = MomentField("time", db_default=Now())
    actor = fields.text(200)
    name = fields.text(150)
    source = fields.text(16, help_text="admin, rest, command or bulk.")
    verb = fields.text(60)
    object = fields.text(200, help_text="For example job 7.")
    model = fields.text(40, help_text="The name of the model, for a link; empty if the object has no page.")
    key = fields.text(200, help_text="The primary key of the object.")
    job_id = models.BigIntegerField(null=True, blank=True, help_text="The job that was changed, or to which the object belongs.")
    verdict = fields.text(16, help_text="done, or requested: a running job was asked to stop.")
    address = fields.text(200, help_text="The address of the request, or the machine of the command.")
    text = fields.text(200)

    class Meta:
        ordering = ("-id",)
        default_permissions = ("view",)
        verbose_name = _("activity")
        verbose_name_plural = _("activities")
        constraints = (fields.time_constraint("jobqueue_audit_times", "at"),)
        indexes = (
            models.Index(fields=["name", "id"], name="jobqueue_audit_of_user"),
            models.Index(fields=["verb", "id"], name="jobqueue_audit_of_verb"),
            models.Index(fields=["job_id", "id"], condition=models.Q(job_id__isnull=False), name="jobqueue_audit_of_job"),
        )

    def __str__(self) -> str:
        return f"{self.actor}: {self.verb} {self.object}"
