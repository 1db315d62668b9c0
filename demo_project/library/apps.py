"""Tell Django about the library."""

from django.apps import AppConfig


class LibraryConfig(AppConfig):
    """Configure the demo's one application."""

    name = "demo_project.library"
    default_auto_field = "django.db.models.BigAutoField"
    verbose_name = "Library"
