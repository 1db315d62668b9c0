"""The subcommand ``manage.py jobqueue rerun``, which runs an ended job again."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from jobqueue.rerun import run_again


def add_arguments(parser: ArgumentParser) -> None:
    """Add the job and the arguments."""
    parser.add_argument("job", metavar="JOB_ID", help="the number of the job, or its public id")
    parser.add_argument("--args", dest="new_args", metavar="JSON", help="other positional arguments: a list, such as [7]")
    parser.add_argument("--kwargs", metavar="JSON", help='other arguments by name: an object, such as {"customer_id": 7}')


def rerun(options: dict[str, Any], job_id: int) -> tuple[Any, list[str], bool]:
    """Enqueue a copy of a job; return the numbers of both as JSON values, and a sentence."""
    values = {"args": _json("--args", options["new_args"]), "kwargs": _json("--kwargs", options["kwargs"])}
    copy = run_again(job_id, **values)
    data = {"job": job_id, "copy": copy, "verdict": "done", "reason": f"as job {copy}"}
    return data, [f"Job {job_id} runs again as job {copy}."], True


def _json(name: str, text: str | None) -> Any:
    if text is None:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise CommandError(f"{name} is not valid JSON: put strings in double quotes, and write true, false and null.") from None
    kind, rule = (list, "a list, such as [7]") if name == "--args" else (dict, 'an object, such as {"customer_id": 7}')
    if not isinstance(value, kind):
        raise CommandError(f"{name} must be {rule}.")
    return value
