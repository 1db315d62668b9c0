"""Tools for the tests of projects; no module outside of this package imports them.

`ImmediateBackend` and `DummyBackend` replace the database backend, `run_until_idle` runs real jobs in the calling thread, and
``jobqueue.testing.conformance`` tests any backend of django.tasks. Importing this package imports no model.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jobqueue.testing.backends import DummyBackend, ImmediateBackend
    from jobqueue.testing.worker import run_until_idle

_HOME_OF = {
    "DummyBackend": "jobqueue.testing.backends",
    "ImmediateBackend": "jobqueue.testing.backends",
    "run_until_idle": "jobqueue.testing.worker",
}

__all__ = ["DummyBackend", "ImmediateBackend", "run_until_idle"]


def __getattr__(name: str) -> Any:
    """Import a public name from its module when it is first used."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'jobqueue.testing' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)
