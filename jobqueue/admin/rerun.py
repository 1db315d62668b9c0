"""The form that runs an ended job again, with the same or other arguments."""

from __future__ import annotations

import json
from typing import NamedTuple

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.translation import gettext as _

from jobqueue.access import audit
from jobqueue.access.hiding import arguments_of
from jobqueue.admin.base import audited
from jobqueue.admin.labels import error_text, translated
from jobqueue.admin.live import LiveAdmin
from jobqueue.core.states import ENDED
from jobqueue.exceptions import CannotRunAgain, JobDoesNotExist
from jobqueue.models import Job
from jobqueue.rerun import run_again


class Field(NamedTuple):
    """One field of the form."""

    name: str
    label: str
    help: str
    rows: int
    text: str


class RerunAdmin(LiveAdmin):
    """The admin with the form that runs a job again."""

    def get_urls(self) -> list[URLPattern]:
        """Add the URL of the form."""
        return [
            path("<int:object_id>/rerun/", self.admin_site.admin_view(self.rerun_view), name="jobqueue_job_rerun"),
            *super().get_urls(),
        ]

    def may_run_again(self, request: HttpRequest, job: Job) -> bool:
        """Return whether the user may run this job again now."""
        return job.status in ENDED and request.user.has_perm("jobqueue.requeue_job")

    @audited
    def rerun_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        """Show the form, or enqueue the copy and open its page."""
        job = self.get_object(request, str(object_id))
        if not self.has_view_permission(request, job) or not request.user.has_perm("jobqueue.requeue_job"):
            raise PermissionDenied
        if job is None:
            if request.method == "POST":
                self.log_missing(request, "rerun", [f"job {object_id}"])
            return self.redirect_missing(request, object_id)
        shown = dict(zip(("args", "kwargs"), (json.dumps(one, ensure_ascii=False) for one in arguments_of(job)), strict=True))
        texts, errors = shown, list[str]()
        if request.method == "POST":
            texts = {name: request.POST.get(name, text) for name, text in shown.items()}
            copy, errors = self._run(request, job, texts, shown)
            if copy is not None:
                return self.back(request, copy)
        elif job.status not in ENDED:
            errors = [_("Only a job that has ended can run again.")]
        request.current_app = self.admin_site.name
        context = {
            **self.admin_site.each_context(request),
            "title": _("Run job %d again") % job.pk,
            "is_nav_sidebar_enabled": False,
            "opts": self.opts,
            "media": self.media,
            "job": job,
            "errors": errors,
            "fields": _fields(texts),
        }
        return TemplateResponse(request, "jobqueue/admin/rerun.html", context, status=400 if errors and request.method == "POST" else 200)

    def _run(self, request: HttpRequest, job: Job, texts: dict[str, str], shown: dict[str, str]) -> tuple[int | None, list[str]]:
        """Enqueue the copy; return its number, or None and what is wrong."""
        values, errors = {}, []
        for name, text in texts.items():
            if text.strip() != shown[name].strip():
                try:
                    values[name] = json.loads(text)
                except (ValueError, RecursionError):
                    errors.append(_("%s is not valid JSON. Put strings in double quotes, and write true, false and null.") % name)
                else:
                    if values[name] is None:
                        errors.append(_("%s must not be null.") % name)
        if errors:
            return None, errors
        try:
            with Job.objects.database.atomic():
                copy = run_again(job.pk, **values)
                self.log_change(request, job, f"Enqueued again as job {copy}{', with other arguments' if values else ''}.")
        except (CannotRunAgain, JobDoesNotExist) as error:
            audit.log_line(request.user, "rerun", job, audit.REFUSED, audit.address_of(request), str(error))
            return None, [*map(translated, error.problems)] if isinstance(error, CannotRunAgain) else [error_text(error)]
        self.message_user(request, _("Job %(job)d runs again as job %(copy)d.") % {"job": job.pk, "copy": copy}, messages.SUCCESS)
        return copy, []


def _fields(texts: dict[str, str]) -> list[Field]:
    hidden = _("A hidden value is kept if only values that it does not depend on are changed.")
    args, kwargs = _("A JSON list, such as [7]."), _('A JSON object, such as {"customer_id": 7}.')
    return [
        Field("args", _("Positional arguments"), f"{args} {hidden}", 3, texts["args"]),
        Field("kwargs", _("Arguments by name"), f"{kwargs} {hidden}", 6, texts["kwargs"]),
    ]
