"""The audit: who has changed, or tried to change, which object, from which address, and with which result.

Each change and each refusal is one record of the logger ``jobqueue.audit``. A change is also a row of `AuditRecord`, which the
page Activity, REST and the command line show. If the admin is installed and the actor is a row of the
project's user model, the admin's log gets an entry for a change, too. It is written in the transaction of the
change.
"""

from __future__ import annotations

import getpass
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from django.apps import apps
from django.contrib.auth import get_user_model
from django.db.models import Model
from django.http import HttpRequest

from jobqueue.core.masking import mask_text
from jobqueue.core.texts import printable
from jobqueue.models import AuditRecord, Job

DONE, REQUESTED, REFUSED, FORBIDDEN = "done", "requested", "refused", "forbidden"
MAX_REPR = 200

_source = ContextVar("jobqueue_audit_source", default="")

logger = logging.getLogger("jobqueue.audit")


def record(actor: Any, verb: str, subject: Model | str, verdict: str, address: str = "", *, text: str = "", deleted: bool = False) -> None:
    """Record one change or refusal; `text` is a sentence for the admin's log; `deleted` means that the object was deleted."""
    log_line(actor, verb, subject, verdict, address, text)
    if isinstance(subject, Model) and verdict in (DONE, REQUESTED):  # the admin's log is the history of changes
        _write(actor, subject, text or f"{verb}: {verdict}", deleted=deleted)


def log_line(actor: Any, verb: str, subject: Model | str, verdict: str, address: str = "", text: str = "") -> None:
    """Write only the log record and the row, for changes that Django itself has written into the admin's log."""
    named = subject if isinstance(subject, str) else f"{subject._meta.verbose_name_raw} {subject.pk}"
    values = [printable(mask_text(value))[:MAX_REPR] for value in (name_of(actor), verb, named, verdict, address, text)]
    extra = dict(zip(("actor", "verb", "object", "verdict", "address", "text"), values, strict=True))
    if verdict in (DONE, REQUESTED):
        _store(actor, subject, dict(zip(("actor", "verb", "object", "verdict", "address", "text"), values, strict=True)))
    logger.info("%s: %s %s: %s (from %s) %s", *values, extra={f"audit_{name}": value for name, value in extra.items()})


def name_of(actor: Any) -> str:
    """Return the name of an actor: a user of the project, of its authenticator, or of the command line."""
    if isinstance(actor, str):
        return actor
    name = getattr(actor, "username", None) or getattr(actor, "name", None) or str(actor)
    number = getattr(actor, "pk", None)
    return f"user {name}" if number is None else f"user {name} ({number})"


def address_of(request: HttpRequest) -> str:
    """Return the address of a request's sender, as the server reports it."""
    return str(request.META.get("REMOTE_ADDR", ""))


@contextmanager
def from_source(name: str) -> Iterator[None]:
    """Store this source with the changes of a block: "rest" or "bulk"."""
    token = _source.set(name)
    try:
        yield
    finally:
        _source.reset(token)


def operator() -> tuple[str, str]:
    """Return the user who runs a command, and the machine."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container's user may have no name
        name = f"uid {os.getuid()}"
    behind = os.environ.get("SUDO_USER")
    return f"operator {name}{f' (sudo from {behind})' if behind else ''}", socket.gethostname()


def _store(actor: Any, subject: Model | str, values: dict[str, str]) -> None:
    """Write the row of a change, in the transaction of the change."""
    key = "" if isinstance(subject, str) else str(subject.pk)
    job_id: int | None = getattr(subject, "job_id", None)
    job_id = subject.pk if isinstance(subject, Job) else job_id
    name = getattr(actor, "username", None) or getattr(actor, "name", None) or str(actor)
    named = {
        "name": printable(mask_text(name.removeprefix("operator ").partition(" (")[0] if isinstance(actor, str) else str(name)))[:150],
        "source": _source.get() or ("command" if isinstance(actor, str) else "admin"),
        "model": "" if isinstance(subject, str) or mask_text(key) != key else str(subject._meta.model_name),
        "key": key[:200] if mask_text(key) == key else "",
    }
    short = {"verb": values["verb"][:60], "verdict": values["verdict"][:16]}
    AuditRecord.objects.using(Job.objects.database.alias).create(**{**values, **short, **named}, job_id=job_id)


def _write(actor: Any, subject: Model, text: str, *, deleted: bool) -> None:
    if not apps.is_installed("django.contrib.admin") or not isinstance(actor, get_user_model()) or actor.pk is None:
        return
    from django.contrib.admin.models import CHANGE, DELETION, LogEntry
    from django.contrib.contenttypes.models import ContentType

    key = str(subject.pk)
    LogEntry.objects.create(
        user_id=actor.pk,
        content_type=ContentType.objects.get_for_model(subject),
        object_id=key if mask_text(key) == key else None,  # the admin's index links to the URL of the object
        object_repr=str(subject)[:MAX_REPR],
        action_flag=DELETION if deleted else CHANGE,
        change_message=mask_text(text),
    )
