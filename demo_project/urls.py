"""URLs of the demo site: the library, the admin, and the files that a web server would serve in production."""

from django.conf import settings
from django.contrib import admin
from django.contrib.staticfiles.views import serve as serve_static
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import include, path
from django.views.static import serve

admin.site.site_header = "jobqueue demo"
admin.site.site_title = "jobqueue demo"
admin.site.index_title = "Jobs and the library that they build"


def media(request: HttpRequest, path: str) -> HttpResponseBase:
    """Serve a file that a job has made."""
    return serve(request, path, document_root=str(settings.MEDIA_ROOT))


urlpatterns = [
    path("", include("demo_project.library.urls")),
    path("webhooks/", include("demo_project.receiver.urls")),
    path("jobqueue/", include("jobqueue.urls")),
    path("admin/", admin.site.urls),
    path("static/<path:path>", serve_static, {"insecure": True}),  # also with DEBUG off: this site is for one machine
    path("media/<path:path>", media),
]
