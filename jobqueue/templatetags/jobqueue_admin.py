"""The tags of the admin's templates, which work on any page of any admin site."""

from __future__ import annotations

from typing import Any

from django import template

from jobqueue.admin.overview import page
from jobqueue.admin.tabs import shown_tabs

register = template.Library()


@register.inclusion_tag("jobqueue/admin/tabs.html", takes_context=True)
def jobqueue_tabs(context: template.Context) -> dict[str, Any]:
    """Show the row of tabs; nothing in a popup."""
    request = context.get("request")
    return {"tabs": [] if request is None or context.get("is_popup") else shown_tabs(request)}


@register.simple_tag(takes_context=True)
def jobqueue_overview(context: template.Context) -> dict[str, Any]:
    """Return the parts of the Overview that the user may view."""
    request = context.get("request")
    return {} if request is None else page.context(request)
