"""The settings of a PostgreSQL database with which jobqueue cannot keep its guarantees."""

from __future__ import annotations

from jobqueue.db.database import Database


def unsuitable(database: Database) -> list[tuple[str, str]]:
    """Return what is wrong with the job database, each problem with its remedy; nothing on SQLite, which has no such settings."""
    if database.vendor != "postgresql":
        return []
    encoding, nulls = database.rows("SELECT current_setting('server_encoding'), current_setting('array_nulls')")[0]
    problems = []
    if encoding != "UTF8":
        text = f"The database has the encoding {encoding}: a message, an argument or an error with other characters cannot be stored."
        problems.append((text, "Create the database with ENCODING 'UTF8'."))
    if nulls != "on":
        text = "array_nulls is off: values that are not set are sent as arrays with NULL, which the server then reads as a text."
        problems.append((text, "Set array_nulls = on, the server's default, for the role or the database."))
    return problems
