"""The switch of the fast path: the setting `FAST_PATH`."""

from __future__ import annotations

from jobqueue import conf


def is_on() -> bool:
    """Return whether statements may take the fast path."""
    return conf.current().fast_path
