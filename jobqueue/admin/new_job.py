"""The form that enqueues a job of one task."""

from __future__ import annotations

import json
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin.utils import unquote
from django.contrib.admin.widgets import AdminSplitDateTime
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _lazy

from jobqueue import compat
from jobqueue.access import audit, visible
from jobqueue.admin import task_choices
from jobqueue.admin.base import audited
from jobqueue.admin.live import LiveAdmin
from jobqueue.core.masking import mask_text
from jobqueue.declared.registry import RegisteredTask
from jobqueue.exceptions import JobQueueError
from jobqueue.models import Job
from jobqueue.schedules.declarations import check_call

KINDS = {"args": list, "kwargs": dict}


class NewJobForm(forms.Form):
    """The arguments of a job, and the options that differ from job to job."""

    args = forms.CharField(
        label=_lazy("Positional arguments"),
        initial="[]",
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text=_lazy("A JSON list, such as [7]."),
    )
    kwargs = forms.CharField(
        label=_lazy("Arguments by name"),
        initial="{}",
        widget=forms.Textarea(attrs={"rows": 6}),
        help_text=_lazy('A JSON object, such as {"customer_id": 7}.'),
    )
    queue = forms.CharField(label=_lazy("Queue"), max_length=200)
    priority = forms.IntegerField(label=_lazy("Priority"), help_text=_lazy("From -100 to 100; jobs with a higher priority run first."))
    run_after = forms.SplitDateTimeField(
        label=_lazy("Run after"),
        required=False,
        widget=AdminSplitDateTime,
        help_text=_lazy("If it is empty, the job can run at once."),
    )

    def __init__(self, entry: RegisteredTask, *args: Any, **kwargs: Any) -> None:
        """Take the defaults from the declaration of the task."""
        super().__init__(*args, **kwargs)
        self.entry = entry
        self.initial = {"queue": entry.task.queue_name, "priority": entry.task.priority}

    def clean_args(self) -> Any:
        """Parse the positional arguments."""
        return self._read("args")

    def clean_kwargs(self) -> Any:
        """Parse the arguments by name."""
        return self._read("kwargs")

    def clean(self) -> None:
        """Reject arguments that do not fit the task."""
        super().clean()
        given = self.cleaned_data
        if not self.errors.keys() & KINDS.keys():
            try:
                check_call(self.entry.func, given["args"], given["kwargs"], takes_context=self.entry.takes_context)
            except JobQueueError as error:
                self.add_error("kwargs", str(error))

    def enqueue(self) -> Any:
        """Enqueue the job and return its result; raise a `JobQueueError` if that is not possible."""
        given = self.cleaned_data
        task = self.entry.task.using(queue_name=given["queue"], priority=given["priority"], run_after=given["run_after"])
        return task.enqueue(*given["args"], **given["kwargs"])

    def _read(self, name: str) -> Any:
        try:
            value = json.loads(self.cleaned_data[name])
        except (ValueError, RecursionError):
            problem = _("%s is not valid JSON. Put strings in double quotes, and write true, false and null.") % name
            raise forms.ValidationError(problem) from None
        if not isinstance(value, KINDS[name]):
            raise forms.ValidationError(self.fields[name].help_text)
        return value


def may_enqueue(request: HttpRequest, entry: RegisteredTask | None) -> bool:
    """Return whether the user may enqueue jobs of a task with the form. A task that is not schedulable has none."""
    return entry is not None and entry.schedulable and request.user.has_perm("jobqueue.add_job")


class NewJobAdmin(LiveAdmin):
    """The admin with the form that enqueues a job."""

    def get_urls(self) -> list[URLPattern]:
        """Add the URL of the form."""
        return [
            path("tasks/<path:task>/new/", self.admin_site.admin_view(self.new_job_view), name="jobqueue_job_task_new"),
            *super().get_urls(),
        ]

    @audited
    def new_job_view(self, request: HttpRequest, task: str) -> HttpResponse:
        """Show the form, or enqueue the job and open its page."""
        name = unquote(task)
        entry = None if "\0" in name else task_choices.entry(name)
        if not self.has_view_permission(request) or not request.user.has_perm("jobqueue.add_job"):
            raise PermissionDenied
        if entry is None:
            raise Http404(_("This process has no task of this name."))
        if not may_enqueue(request, entry):
            raise PermissionDenied
        form = NewJobForm(entry, request.POST if request.method == "POST" else None)
        if request.method == "POST" and form.is_valid() and (job_id := self._enqueue(request, form)) is not None:
            return HttpResponseRedirect(reverse("admin:jobqueue_job_change", args=[job_id], current_app=self.admin_site.name))
        request.current_app = self.admin_site.name
        context = {
            **self.admin_site.each_context(request),
            "title": _("New job"),
            "is_nav_sidebar_enabled": False,
            "opts": self.opts,
            "media": self.media + form.media,
            "name": mask_text(name),
            "task_url": reverse("admin:jobqueue_job_task", args=[name], current_app=self.admin_site.name),
            "signature": task_choices.signature(entry.func),
            "form": form,
        }
        return TemplateResponse(request, "jobqueue/admin/new_job.html", context, status=400 if form.errors else 200)

    def _enqueue(self, request: HttpRequest, form: NewJobForm) -> int | None:
        """Enqueue the job; return its number, or None if the form has an error now."""
        try:
            with Job.objects.database.atomic():
                result = form.enqueue()
                job = visible.narrow(request.user, Job.objects.current.filter(pk=result.job_id)).first()
                if job is None:  # such as a job of another tenant
                    raise JobQueueError(_("You may not see the job that this would enqueue."))
                if result.created:
                    self.log_addition(request, job, "Enqueued.")
        except (JobQueueError, compat.InvalidTask, compat.InvalidTaskBackend) as error:
            audit.log_line(request.user, "enqueue", mask_text(form.entry.path), audit.REFUSED, audit.address_of(request), str(error))
            form.add_error(None, str(error))
            return None
        if result.created:
            self.message_user(request, _("Job %d was enqueued.") % job.pk, messages.SUCCESS)
        else:
            text = _("Job %d has the same unique key and has not ended, so no job was enqueued.")
            self.message_user(request, text % job.pk, messages.WARNING)
        return int(job.pk)
