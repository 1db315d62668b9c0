"""Tell Django about the workload."""

from django.apps import AppConfig


class WorkloadConfig(AppConfig):
    """Configure the app with the catalogue of work kinds; it has no models."""

    name = "demo_project.workload"
    verbose_name = "Workload"
