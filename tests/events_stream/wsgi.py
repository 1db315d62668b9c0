"""The test site for servers that take an application by its name."""

from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application

application = get_wsgi_application()
asgi_application = get_asgi_application()
