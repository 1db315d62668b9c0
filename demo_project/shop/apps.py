"""The app of the shop."""

from django.apps import AppConfig


class ShopConfig(AppConfig):
    """The configuration of the app with the jobs in trouble; it has no models."""

    name = "demo_project.shop"
    verbose_name = "Shop"
