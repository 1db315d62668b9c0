"""The tags of the admin's templates, which work on any page of any admin site."""

from __future__ import annotations

from typing import Any

from django import template

from jobqueue.admin.tabs import shown_tabs

register = template.Library()


@register.inclusion_tag("jobqueue/admin/tabs.html", takes_context=True)
def jobqueue_tabs(context: template.Context) -> dict[str, Any]:
    """Show the row of tabs; nothing in a popup."""
    request = context.get("request")
    return {"tabs": [] if request is None or context.get("is_popup") else shown_tabs(request)}
