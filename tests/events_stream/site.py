"""The settings of a real server on the test's own database; the environment says which, and what differs."""

import json
import os

from tests.settings import *  # noqa: F403

DATABASES = {"default": json.loads(os.environ["STREAM_DATABASE"])}
JOBQUEUE = json.loads(os.environ["STREAM_JOBQUEUE"])
if os.environ.get("STREAM_GZIP"):
    MIDDLEWARE = ["django.middleware.gzip.GZipMiddleware", *MIDDLEWARE]  # noqa: F405
