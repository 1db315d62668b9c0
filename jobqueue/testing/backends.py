"""The test backends of django.tasks, accepting our options."""

from __future__ import annotations

from typing import Any

from jobqueue import compat
from jobqueue.backends import JobTaskMixin

Immediate: Any = compat.module("backends.immediate").ImmediateBackend
Dummy: Any = compat.module("backends.dummy").DummyBackend


class ImmediateBackend(JobTaskMixin, Immediate):  # type: ignore[misc]
    """Run a task at once, in the caller's thread."""

    supports_defer = False


class DummyBackend(JobTaskMixin, Dummy):  # type: ignore[misc]
    """Keep what was enqueued in a list, and run nothing."""
