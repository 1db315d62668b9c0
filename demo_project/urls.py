"""URLs of the demo site: the library, the admin, and the files that a web server would serve in production."""

from django.conf import settings
from django.contrib import admin
from django.contrib.staticfiles.views import serve as serve_static
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.urls import include, path
from django.views.static import serve

admin.site.site_header = "jobqueue demo"
admin.site.site_title = "jobqueue demo"
admin.site.index_title = "Jobs and the library that they build"


def media(request: HttpRequest, path: str) -> HttpResponseBase:
    """Serve a file that a job has created."""
    return _whole(serve(request, path, document_root=str(settings.MEDIA_ROOT)))


def static(request: HttpRequest, path: str) -> HttpResponseBase:
    """Serve a static file, also with DEBUG off, because this site is for one machine."""
    return _whole(serve_static(request, path, insecure=True))


def _whole(response: HttpResponseBase) -> HttpResponseBase:
    """Return a file as one response: under ASGI, Django warns about a file that is read in parts."""
    if not isinstance(response, StreamingHttpResponse):
        return response
    whole = HttpResponse(response.getvalue(), status=response.status_code, headers=dict(response.headers))
    response.close()
    return whole


urlpatterns = [
    path("", include("demo_project.library.urls")),
    path("webhooks/", include("demo_project.receiver.urls")),
    path("jobqueue/", include("jobqueue.urls")),
    path("admin/", admin.site.urls),
    path("static/<path:path>", static),
    path("media/<path:path>", media),
]
