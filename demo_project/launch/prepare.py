"""Prepare the database, and a user of the admin."""

import os
import secrets
from pathlib import Path

from django.contrib.auth import get_user_model
from django.core.management import call_command

USER = "admin"


def migrate() -> None:
    """Apply the migrations."""
    call_command("migrate", interactive=False, verbosity=0)


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
