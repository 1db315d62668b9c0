"""The SQL of both databases: transactions, the hot statements, notifications.

No other package, except for the migrations, sends SQL of its own.
"""

from jobqueue.db.database import Database, for_alias
from jobqueue.db.dedicated_connections import close_idle
from jobqueue.db.ended_jobs import EndedJob
from jobqueue.db.environment import unsuitable
from jobqueue.db.errors import (
    is_connection_error,
    is_lock_refusal,
    is_missing_table,
    is_outage,
    is_refusal,
    missing_tables,
    was_given_up,
)
from jobqueue.db.fence import fenced
from jobqueue.db.pooling import WORKER_CONNECTIONS, pool_size, pooled_slots
from jobqueue.db.records import NO_LEASE, Claimed, EndedRun, Event, Lease, LeaseHolder, Mark, Renewed, RunEnd, Scope
from jobqueue.db.targets import Released
from jobqueue.db.times import MomentField, Now
from jobqueue.db.uuids import UUIDField

__all__ = [
    "NO_LEASE",
    "WORKER_CONNECTIONS",
    "Claimed",
    "Database",
    "EndedJob",
    "EndedRun",
    "Event",
    "Lease",
    "LeaseHolder",
    "Mark",
    "MomentField",
    "Now",
    "Released",
    "Renewed",
    "RunEnd",
    "Scope",
    "UUIDField",
    "close_idle",
    "fenced",
    "for_alias",
    "is_connection_error",
    "is_lock_refusal",
    "is_missing_table",
    "is_outage",
    "is_refusal",
    "missing_tables",
    "pool_size",
    "pooled_slots",
    "unsuitable",
    "was_given_up",
]
