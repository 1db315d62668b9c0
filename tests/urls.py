"""URLs of the test suite: the admin, and the demo's site, which its templates link to."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [path("admin/", admin.site.urls), path("", include("demo_project.library.urls"))]
