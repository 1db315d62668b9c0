"""The site of `tests.browser.site` by ASGI, with its static files."""

from django.contrib.staticfiles.handlers import ASGIStaticFilesHandler
from django.core.asgi import get_asgi_application

application = ASGIStaticFilesHandler(get_asgi_application())
