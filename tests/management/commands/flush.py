"""Empty the tables after a test that has committed: instead of Django's ``flush``, which takes longer than most of those tests.

Django truncates every table, which makes new files for each of them and of its indexes, and then makes the content types and the
permissions anew. This command empties only tables that have rows, and keeps the rows of `migrate`. On PostgreSQL a table that has grown,
or that was analyzed, is truncated: the next test then finds the plans and the costs of an empty one.
"""

from functools import cache
from typing import Any

from django.core.management.base import BaseCommand
from django.db import connections, transaction

KEPT = {"django_content_type", "auth_permission"}
GROWN = 64 * 1024
# The locks are those of TRUNCATE: it waits for sessions that still write, such as that of a killed process.
POSTGRESQL = """
DO $$
DECLARE
    name text;
    size bigint;
    grown text[] := '{{}}';
BEGIN
    LOCK TABLE {tables} IN ACCESS EXCLUSIVE MODE;
    PERFORM set_config('session_replication_role', 'replica', true);  -- the references among them need no check
    FOREACH name IN ARRAY ARRAY[{names}] LOOP
        size := pg_relation_size(name::regclass);
        IF size > {grown} OR size > 0 AND (SELECT reltuples >= 0 FROM pg_class WHERE oid = name::regclass) THEN
            grown := grown || name;
        ELSIF size > 0 THEN
            EXECUTE 'DELETE FROM ' || name;
        END IF;
    END LOOP;
    IF cardinality(grown) > 0 THEN
        EXECUTE 'TRUNCATE ' || array_to_string(grown, ', ') || ' CASCADE';
    END IF;
END $$
"""


class Command(BaseCommand):
    """Empty the tables of the tests' database."""

    requires_system_checks = ()
    # What a test case says of Django's command.
    stealth_options = ("interactive", "database", "reset_sequences", "allow_cascade", "inhibit_post_migrate")

    def handle(self, *args: Any, database: str, **options: Any) -> None:
        """Empty the tables in one transaction."""
        connection = connections[database]
        names = tables(database, str(connection.settings_dict["NAME"]))
        with transaction.atomic(using=database), connection.cursor() as cursor:
            if connection.vendor == "postgresql":
                quoted = ", ".join(f"'{name}'" for name in names)
                cursor.execute(POSTGRESQL.format(tables=", ".join(names), names=quoted, grown=GROWN))
                return
            cursor.execute(" UNION ALL ".join(f"SELECT '{name}' WHERE EXISTS (SELECT 1 FROM {name})" for name in names))
            for (name,) in cursor.fetchall():
                cursor.execute(f"DELETE FROM {name}")


@cache
def tables(database: str, name: str) -> list[str]:
    """Return the tables of the models in a database of that name, but for those that are kept."""
    connection = connections[database]
    found = {*connection.introspection.django_table_names(only_existing=True, include_views=False)} - KEPT
    return [connection.ops.quote_name(one) for one in sorted(found)]
