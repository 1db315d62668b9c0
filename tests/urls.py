"""URLs of the test suite: the admin, the REST API, and the demo's site, which its templates link to."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("admin/", admin.site.urls),
    path("jobqueue/", include("jobqueue.urls")),
    path("", include("demo_project.library.urls")),
]
