"""Settings of the site that a test serves by uvicorn, in a process of its own; every answer has a strict content security policy."""

import json
import os
from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils.decorators import sync_and_async_middleware

os.environ["TEST_DATABASE"] = "sqlite"  # only so that reading the settings of the tests starts no server

from tests import settings

POLICY = "default-src 'self'; base-uri 'none'; frame-ancestors 'none'; object-src 'none'"


@sync_and_async_middleware
def strict(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Allow nothing inline, and nothing from elsewhere."""
    from asgiref.sync import iscoroutinefunction

    def marked(response: HttpResponse) -> HttpResponse:
        response["Content-Security-Policy"] = POLICY
        return response

    if iscoroutinefunction(get_response):

        async def amiddleware(request: HttpRequest) -> HttpResponse:
            return marked(await get_response(request))

        return amiddleware
    return lambda request: marked(get_response(request))


SECRET_KEY = settings.SECRET_KEY
USE_TZ = True
TIME_ZONE = "Europe/Berlin"
ALLOWED_HOSTS = ["127.0.0.1"]
ROOT_URLCONF = settings.ROOT_URLCONF
DEFAULT_AUTO_FIELD = settings.DEFAULT_AUTO_FIELD
STATIC_URL = settings.STATIC_URL
INSTALLED_APPS = settings.INSTALLED_APPS
MIDDLEWARE = ["tests.browser.site.strict", *settings.MIDDLEWARE]
TEMPLATES = settings.TEMPLATES
TASKS = settings.TASKS
DATABASES: dict[str, Any] = {"default": json.loads(os.environ["FAULTS_DATABASE"])}
JOBQUEUE: dict[str, Any] = {}
