"""URLs of the receiver."""

from django.urls import path

from demo_project.receiver import views

app_name = "receiver"
urlpatterns = [
    path("", views.messages, name="messages"),
    path("receive/", views.receive, name="receive"),
]
