"""Find out whether a database has the schema of this checkout, and empty it if not.

Until the first release, a change of jobqueue's schema goes into its first migration. `migrate` changes nothing in a
database that has this migration from an earlier checkout, so such a database must be made anew.
"""

import hashlib
from typing import Any

from django.db.migrations.loader import MigrationLoader

TABLE = "checkout_schema"  # one row: the digest of the schema that was made


def is_old(connection: Any) -> bool:
    """Return whether a database has tables of jobqueue that an earlier checkout made."""
    with connection.cursor() as cursor:
        names = connection.introspection.table_names(cursor)
        if TABLE in names:
            cursor.execute(f"SELECT digest FROM {TABLE}")  # noqa: S608 - a constant
            return bool(cursor.fetchall() != [(_digest(connection),)])
        return "jobqueue_job" in names


def record(connection: Any) -> None:
    """Store that a database has the schema of this checkout."""
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE IF NOT EXISTS {TABLE} (digest varchar(64) NOT NULL)")
        cursor.execute(f"DELETE FROM {TABLE}")  # noqa: S608
        cursor.execute(f"INSERT INTO {TABLE} VALUES (%s)", [_digest(connection)])  # noqa: S608


def drop_tables(connection: Any) -> None:
    """Drop all tables of a database."""
    with connection.cursor() as cursor, connection.schema_editor() as editor:
        for name in connection.introspection.table_names(cursor):
            editor.execute(editor.sql_delete_table % {"table": editor.quote_name(name)})


def _digest(connection: Any) -> str:
    """Return a digest of the SQL of the applied migrations of jobqueue; it is empty if one of them does not exist any more."""
    loader = MigrationLoader(connection, replace_migrations=False)
    applied = sorted(key for key in loader.applied_migrations if key[0] == "jobqueue")
    if any(key not in loader.graph.nodes for key in applied):
        return ""
    statements: list[str] = loader.collect_sql([(loader.graph.nodes[key], False) for key in applied])
    return hashlib.sha256("\n".join(statements).encode()).hexdigest()
