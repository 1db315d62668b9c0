"""The only place that knows which database it is: transactions, the hot statements, notifications."""

from jobqueue.db.base import Database, for_alias, is_connection_error, is_lock_refusal, is_missing_table, is_refusal, was_given_up
from jobqueue.db.ended import Ended, Flow
from jobqueue.db.records import Claimed, Lease, Lender, Mark, Renewed, Scope, Success
from jobqueue.db.targets import Released

__all__ = [
    "Claimed",
    "Database",
    "Ended",
    "Flow",
    "Lease",
    "Lender",
    "Mark",
    "Released",
    "Renewed",
    "Scope",
    "Success",
    "for_alias",
    "is_connection_error",
    "is_lock_refusal",
    "is_missing_table",
    "is_refusal",
    "was_given_up",
]
