"""Prepare the database, and a user of the admin."""

import os
import secrets
from pathlib import Path

from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.db import connection

from demo_project import schema

USER = "admin"
FOREIGN = (
    "The database {name!r} has tables of an older version of jobqueue, and tables that the demo did not create: {tables}. "
    "Set DATABASE_URL to an empty database, or drop the tables."
)


class ForeignTables(Exception):
    """The error for a database of an older schema that is not the demo's alone."""


def migrate() -> bool:
    """Apply the migrations; return whether the database had an older schema and was therefore emptied first."""
    if old := schema.is_old(connection):
        _check_that_it_is_ours()
        schema.drop_tables(connection)
    call_command("migrate", interactive=False, verbosity=0)
    schema.record(connection)
    return old


def _check_that_it_is_ours() -> None:
    """Raise `ForeignTables` if a database has tables of another project."""
    names = set(connection.introspection.table_names())
    ours = {*connection.introspection.django_table_names(), "django_migrations", schema.TABLE}
    foreign = [name for name in sorted(names - ours) if not name.startswith("jobqueue_")]
    if foreign:
        raise ForeignTables(FOREIGN.format(name=str(connection.settings_dict["NAME"]), tables=", ".join(foreign)))


def admin_password(path: Path) -> str:
    """Create the user `admin` if necessary, and return its password, which is stored in `path`."""
    if not path.exists():
        with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(secrets.token_urlsafe(12))
    password = path.read_text().strip()
    user = get_user_model().objects.filter(username=USER).first()
    if user is None:
        get_user_model().objects.create_superuser(USER, "admin@example.org", password)
    elif not (user.check_password(password) and user.is_active and user.is_superuser):
        user.is_active = user.is_staff = user.is_superuser = True
        user.set_password(password)
        user.save()
    return password
