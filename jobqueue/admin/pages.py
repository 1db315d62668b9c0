"""The pages of an admin site: which ones exist, and which of them a user may view."""

from __future__ import annotations

from urllib.parse import urlencode

from django.contrib.admin import AdminSite
from django.contrib.admin.sites import all_sites
from django.contrib.admin.utils import quote
from django.db.models import Model
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse

from jobqueue.core.masking import mask_text
from jobqueue.insight.problems import PageLink
from jobqueue.models import BackgroundJobLease, Job, Queue, Schedule, WebhookDelivery, Worker

OVERVIEW = "app_list"
MODELS: dict[str, type[Model]] = {
    f"jobqueue_{model._meta.model_name}": model for model in (BackgroundJobLease, Job, Queue, Schedule, WebhookDelivery, Worker)
}


class Pages:
    """The pages of the site that serves a request."""

    def __init__(self, request: HttpRequest) -> None:
        """Find the site. There is none if a page of another app calls this."""
        name = getattr(request, "current_app", None) or getattr(request.resolver_match, "namespace", None)
        self.request = request
        self.site: AdminSite | None = next((site for site in all_sites if site.name == name), None)

    def may_view(self, model: type[Model]) -> bool:
        """Return whether the site has pages of a model, and the user may view them."""
        if self.site is None or not self.site.is_registered(model):
            return False
        may: bool = self.site.get_model_admin(model).has_view_permission(self.request)
        return may

    def url(self, page: str, *args: object, **query: object) -> str:
        """Return the URL of a page by the name that it has in the admin; empty if there is none, or if the URL would contain a secret."""
        given = [quote(str(arg)) for arg in args] if page != OVERVIEW else [Job._meta.app_label]
        texts = [*map(str, (*args, *query.values()))]
        if self.site is None or any(mask_text(text) != text for text in texts):
            return ""
        try:
            path = reverse(f"admin:{page}", args=given, current_app=self.site.name)
        except NoReverseMatch:
            return ""
        return f"{path}?{urlencode(query)}" if query else path

    def link(self, link: PageLink | None) -> str:
        """Return the URL of the page of a problem; empty if the user may not view it."""
        if link is None or not self.may_link(link):
            return ""
        return self.url(link.page, *link.args, **link.query)

    def may_link(self, link: PageLink) -> bool:
        """Return whether the user may view the page of a problem."""
        model = MODELS.get("_".join(link.page.split("_")[:2]))
        return model is not None and self.may_view(model)

    def jobs(self, **query: object) -> str:
        """Return the URL of the list of jobs with some filters; empty if the user may not view it."""
        return self.url("jobqueue_job_changelist", **query) if self.may_view(Job) else ""
