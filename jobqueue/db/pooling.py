"""The number of connections that the pool of a database lends. More threads than that would wait for each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# The default of psycopg_pool.
DEFAULT_POOL_SIZE = 4
# The services of a worker have separate connections, outside the pool. Its main thread takes a connection from
# the pool now and then.
WORKER_CONNECTIONS = 1


def pool_size(options: Mapping[str, Any]) -> int | None:
    """Return the size of the pool (its minimum if it has no maximum), or None if there is no pool."""
    pool = options.get("pool")
    if not pool:
        return None
    if not isinstance(pool, Mapping):
        return DEFAULT_POOL_SIZE
    least, most = pool.get("min_size", DEFAULT_POOL_SIZE), pool.get("max_size")
    return int(least if most is None else most)


def pooled_slots(options: Mapping[str, Any]) -> int | None:
    """Return how many slots of a worker the pool can serve at the same time, or None if there is no pool."""
    size = pool_size(options)
    return None if size is None else size - WORKER_CONNECTIONS
