"""The app of the library."""

from django.apps import AppConfig


class LibraryConfig(AppConfig):
    """The configuration of the library's app."""

    name = "demo_project.library"
    default_auto_field = "django.db.models.BigAutoField"
    verbose_name = "Library"
