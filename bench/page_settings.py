"""Django settings, and the URLs, of the site whose pages are measured: the admin and the REST API."""

from django.urls import include, path

from bench.settings import *  # noqa: F403
from bench.settings import INSTALLED_APPS as MEASURED

ROOT_URLCONF = "bench.page_settings"
ALLOWED_HOSTS = ["*"]
STATIC_URL = "static/"
INSTALLED_APPS = [
    *("django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes", "django.contrib.messages", "django.contrib.sessions"),
    *MEASURED,
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]


def __getattr__(name: str) -> object:
    """Return the URLs when they are first asked for: the admin can be imported only after the settings."""
    if name != "urlpatterns":
        raise AttributeError(name)
    from django.contrib import admin

    return [path("admin/", admin.site.urls), path("jobqueue/", include("jobqueue.urls"))]
