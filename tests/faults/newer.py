"""Tasks of a release that only some workers run."""

from typing import Any

from jobqueue import task
from tests.faults import witness


@task(takes_context=True)
def added_since(context: Any) -> str:
    with witness.run_of(context):
        return "newer"
