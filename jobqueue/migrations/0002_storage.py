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


def set_parameters(apps: Any, schema_editor: Any) -> None:
    """Set the storage parameters."""
    if schema_editor.connection.vendor == "postgresql":
        given = ", ".join(f"{name} = {value}" for name, value in PARAMETERS.items())
        schema_editor.execute(f"ALTER TABLE jobqueue_job SET ({given})")


def reset_parameters(apps: Any, schema_editor: Any) -> None:
    """Go back to the server's own."""
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(f"ALTER TABLE jobqueue_job RESET ({', '.join(PARAMETERS)})")


class Migration(migrations.Migration):
    """Set storage parameters; takes a lock that lets reads and writes go on."""

    dependencies = [("jobqueue", "0001_initial")]
    operations = [migrations.RunPython(set_parameters, reset_parameters)]
