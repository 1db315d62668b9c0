"""The app of the workload."""

from django.apps import AppConfig


class WorkloadConfig(AppConfig):
    """The configuration of the app with the catalogue of work; it has no models."""

    name = "demo_project.workload"
    verbose_name = "Workload"
