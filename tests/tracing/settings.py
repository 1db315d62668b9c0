"""Settings of a worker process that exports its spans to a file."""

from tests.faults.settings import *  # noqa: F403 - the same settings
from tests.tracing.spans import set_up

set_up()
