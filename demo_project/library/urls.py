"""URLs of the library."""

from django.urls import path

from demo_project.library import views

app_name = "library"
urlpatterns = [
    path("", views.home, name="home"),
    path("package/<str:name>/", views.package, name="package"),
    path("module/<str:name>/", views.module, name="module"),
]
