"""A task of a release that only some workers run: those that name this module."""

from typing import Any

from django.conf import settings

from jobqueue import task
from tests.faults import witness

if __name__ in settings.JOBQUEUE["TASK_MODULES"]:

    @task(takes_context=True)
    def added_since(context: Any) -> str:
        with witness.run_of(context):
            return "newer"
