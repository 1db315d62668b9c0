"""The app of the receiver."""

from django.apps import AppConfig


class ReceiverConfig(AppConfig):
    """Configure the receiver."""

    name = "demo_project.receiver"
    default_auto_field = "django.db.models.BigAutoField"
