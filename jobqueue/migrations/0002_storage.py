"""Room and care for a table whose rows change several times within their first second (PostgreSQL only)."""

from typing import Any

from django.db import migrations

PARAMETERS = {
    # Room in each page for the next versions of its rows: heartbeats and progress stay heap-only updates.
    "fillfactor": "70",
    "autovacuum_vacuum_scale_factor": "0.02",
    "autovacuum_vacuum_threshold": "1000",
    "autovacuum_vacuum_cost_delay": "0",
    "autovacuum_analyze_scale_factor": "0.05",
}
SET = f"ALTER TABLE jobqueue_job SET ({', '.join(f'{name} = {value}' for name, value in PARAMETERS.items())})"
RESET = f"ALTER TABLE jobqueue_job RESET ({', '.join(PARAMETERS)})"


class OnPostgreSQL(migrations.RunSQL):
    """SQL for PostgreSQL; nothing happens on another database."""

    def database_forwards(self, app_label: str, schema_editor: Any, *states: Any) -> None:
        if schema_editor.connection.vendor == "postgresql":
            super().database_forwards(app_label, schema_editor, *states)

    def database_backwards(self, app_label: str, schema_editor: Any, *states: Any) -> None:
        if schema_editor.connection.vendor == "postgresql":
            super().database_backwards(app_label, schema_editor, *states)


class Migration(migrations.Migration):
    """Set storage parameters, with a lock that allows reads and writes."""

    dependencies = [("jobqueue", "0001_initial")]
    operations = [OnPostgreSQL(SET, RESET)]
