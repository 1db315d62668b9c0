"""The URLs of the REST API; a project includes them: ``path("jobqueue/", include("jobqueue.urls"))``."""

from jobqueue.api.dispatch import patterns
from jobqueue.api.endpoints import ENDPOINTS

app_name = "jobqueue"
urlpatterns = patterns(ENDPOINTS)
