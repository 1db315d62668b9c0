"""The calls of ``manage.py jobqueue`` that tests read."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

from django.core.management import call_command


def run(*args: Any) -> tuple[str, int]:
    """Return what the command says, and the status it ends with."""
    out = StringIO()
    try:
        call_command("jobqueue", *map(str, args), stdout=out)
    except SystemExit as end:
        return out.getvalue(), int(end.code or 0)
    return out.getvalue(), 0


def told(*args: Any) -> tuple[Any, int]:
    """Return the same, of JSON."""
    text, status = run(*args, "--json")
    return json.loads(text), status
