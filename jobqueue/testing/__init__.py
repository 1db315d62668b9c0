"""Tools for the tests of projects; nothing shipped imports them."""

from jobqueue.testing.backends import DummyBackend, ImmediateBackend

__all__ = ["DummyBackend", "ImmediateBackend"]
