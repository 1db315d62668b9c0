"""The app of the receiver."""

from django.apps import AppConfig


class ReceiverConfig(AppConfig):
    """The configuration of the receiver's app."""

    name = "demo_project.receiver"
    default_auto_field = "django.db.models.BigAutoField"
