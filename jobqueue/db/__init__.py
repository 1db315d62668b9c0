"""The only place that knows which database it is: transactions, the hot statements, notifications."""

from jobqueue.db.base import Claimed, Database, Lease, Mark, Renewed, Success, for_alias, is_connection_error, is_missing_table, is_refusal

__all__ = [
    "Claimed",
    "Database",
    "Lease",
    "Mark",
    "Renewed",
    "Success",
    "for_alias",
    "is_connection_error",
    "is_missing_table",
    "is_refusal",
]
