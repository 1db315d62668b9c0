"""The rules of the setting ``DUTIES``: the duties of jobqueue that it can name, and the options that it can set for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobqueue.core.setting_rules import POSITIVE

BUILTIN = frozenset(
    {
        "promote_due_jobs",
        "expire_stale_running_jobs",
        "enqueue_scheduled_jobs",
        "apply_retention",
        "deliver_webhooks",
        "collect_metrics",
        "forget_dead_workers",
        "release_parked_targets",
        "run_bulk_actions",
    }
)
STRATEGIES = ("lease", "everyone")
TEXT = (
    'a dict of names of duties of jobqueue to dicts with "strategy" ("lease" or "everyone"), or "rotate_after_seconds" '
    '(a number above 0, at most 31622400), which needs the strategy "lease"'
)


def is_duties(value: Any) -> bool:
    """Return whether a value maps duties of jobqueue to their options."""
    return isinstance(value, Mapping) and all(
        isinstance(name, str) and name in BUILTIN and _is_options(options) for name, options in value.items()
    )


def _is_options(value: Any) -> bool:
    if not isinstance(value, Mapping) or not set(value) <= {"strategy", "rotate_after_seconds"}:
        return False
    strategy, rotate = value.get("strategy", "lease"), value.get("rotate_after_seconds")
    return strategy in STRATEGIES and (rotate is None or (strategy == "lease" and POSITIVE.accepts(rotate)))


def shorter_rotations(duties: Mapping[str, Mapping[str, Any]] | None, lease_seconds: float) -> list[tuple[str, float]]:
    """Return the duties whose leader would change before a lease can run out, each with its ``rotate_after_seconds``."""
    given = {name: options.get("rotate_after_seconds") for name, options in (duties or {}).items()}
    return [(name, seconds) for name, seconds in sorted(given.items()) if seconds is not None and seconds < lease_seconds]
