"""Read from the options of a database how many connections its pool lends: threads beyond that would wait for each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# What psycopg_pool takes where the pool's size is not said.
DEFAULT_POOL_SIZE = 4
# A worker's services have connections of their own, outside the pool; its main thread takes one of the pool now and then.
WORKER_CONNECTIONS = 1


def pool_size(options: Mapping[str, Any]) -> int | None:
    """Return how many connections the pool may hold (without a maximum it stays at its minimum); None where there is no pool."""
    pool = options.get("pool")
    if not pool:
        return None
    if not isinstance(pool, Mapping):
        return DEFAULT_POOL_SIZE
    least, most = pool.get("min_size", DEFAULT_POOL_SIZE), pool.get("max_size")
    return int(least if most is None else most)


def pooled_slots(options: Mapping[str, Any]) -> int | None:
    """Return how many slots of a worker the pool serves at the same time; None where there is no pool, and so no bound."""
    size = pool_size(options)
    return None if size is None else size - WORKER_CONNECTIONS
