"""What both admins share: people look, and only verbs change anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest

M = TypeVar("M", bound=Model)

if TYPE_CHECKING:

    class Base(admin.ModelAdmin[M]):
        """Stand for the admin that the type checker sees."""

else:

    class Base(admin.ModelAdmin):
        """Stand for the admin at run time, where it need not be generic on Django 5.2."""

        def __class_getitem__(cls, model: Any) -> type:
            """Return the class itself: the model is for the type checker alone."""
            return cls


class ReadOnlyAdmin(Base[M]):
    """Refuse every form: run-time columns belong to the protocol, and a saved form would overwrite what a worker wrote meanwhile."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Refuse."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: M | None = None) -> bool:
        """Refuse."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: M | None = None) -> bool:
        """Refuse."""
        return False

    class Media:
        css = {"all": ("jobqueue/admin.css",)}
