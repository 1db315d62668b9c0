from typing import Any

from django.db import migrations

from jobqueue.db.times import nearest
from jobqueue.models.fields import Readable


def check_dates(apps: Any, schema_editor: Any) -> None:
    """Let SQLite check the times of each table anew, as a fresh database does: it took dates that no calendar has."""
    if schema_editor.connection.vendor != "sqlite":
        return
    for model in apps.get_app_config("jobqueue").get_models():
        for one in model._meta.constraints:
            if not isinstance(getattr(one, "condition", None), Readable):
                continue
            table = model._meta.db_table
            for column in (part.name for part in one.condition.get_source_expressions()):
                read = nearest(f'"{column}"', "sqlite")
                schema_editor.execute(f'UPDATE {table} SET "{column}" = {read} WHERE "{column}" <> {read}')  # noqa: S608 - names of ours
            schema_editor.add_constraint(model, one)  # makes the table anew, with the constraints that the model has


class Migration(migrations.Migration):
    dependencies = [
        ("jobqueue", "0019_job_expires"),
    ]

    operations = [
        migrations.RunPython(check_dates, migrations.RunPython.noop, elidable=True),
    ]
