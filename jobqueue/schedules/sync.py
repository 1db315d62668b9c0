"""Write the schedules that the code declares into rows, when a worker starts.

Several projects, or services of one project, can share a database. Each writes only its own rows: those of its
`SERVICE`, or, without that setting, those that a module of this project declares. If two of them declare the same
name, that is a conflict: the row stays with its first owner and names the other one, and `health` reports it.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from functools import partial

from django.apps import apps

from jobqueue import conf
from jobqueue.core.masking import PLAIN
from jobqueue.core.texts import exception_summary
from jobqueue.db import is_outage
from jobqueue.declared import imports, registry
from jobqueue.exceptions import LeadershipLost
from jobqueue.models import Schedule
from jobqueue.schedules import ticks
from jobqueue.schedules.declarations import DEFINITION, Declaration, declarations

logger = logging.getLogger("jobqueue")


def sync_schedules() -> int:
    """Write the declarations into rows, and retire the rows that are no longer declared; return how many rows changed.

    It is safe to call at any time, in any process; each worker calls it when it starts. If a row of the same name
    was created in the admin, the code takes it over. A schedule that fails is logged, and the rest continues; a
    locked row is left unchanged.
    """
    return write_declarations()[0]


def write_declarations() -> tuple[int, int]:
    """Write the declarations as `sync_schedules` does; return how many rows changed, and how many a later call can still change."""
    registry.discover()
    rows, known = Schedule.objects.by_name(), declarations()
    steps: list[tuple[str, Callable[[], int]]] = [
        (name, partial(_write_declaration, declaration, rows.get(name))) for name, declaration in sorted(known.items())
    ]
    for name, row in rows.items():
        if name not in known:
            # a module that failed may declare the rest
            if row.source == Schedule.Source.CODE and row.retired_at is None and _is_ours(row) and not imports.failures():
                steps.append((name, partial(_retire, name)))
            elif row.conflict and _says_this_service(row.conflict):
                steps.append((name, partial(_note_conflict, row, "")))
    changed = failed = 0
    for name, step in steps:
        try:
            changed += step()
        except Schedule.DoesNotExist:
            logger.warning("Schedule %s was not updated: another transaction has locked its row. The next run tries again.", name)
            failed += 1
        except Exception as error:
            if is_outage(error) or isinstance(error, LeadershipLost):
                raise
            text = exception_summary(error, PLAIN)
            logger.error("Schedule %s: its declaration cannot be written to its row: %s", name, text)
            failed += 1
    return changed, failed


def _retire(name: str) -> int:
    ticks.retire(name)
    logger.info("Schedule %s is no longer declared and was retired.", name)
    return 1


def _write_declaration(declaration: Declaration, row: Schedule | None) -> int:
    if row is None:
        if ticks.create(declaration.row()):
            logger.info("Schedule %s was created.", declaration.name)
            return 1
        row = Schedule.objects.current.get(name=declaration.name)  # another worker was first
    if row.retired_at is None and not _may_take(row):
        return _note_conflict(row, f"{_this_service()} declares it, too, in {declaration.declared_in}")
    wanted = {name: getattr(declaration, name) for name in (*DEFINITION, "declared_in")}
    wanted |= {"source": Schedule.Source.CODE.value, "retired_at": None, "service": conf.service()}
    if row.conflict and _says_this_service(row.conflict):
        wanted["conflict"] = ""
    if all(getattr(row, name) == value for name, value in wanted.items()):
        return 0  # as at nearly each start: nothing is locked
    for name, value in wanted.items():
        setattr(row, name, value)
    done = ticks.define(row, list(wanted), wait=False)
    if done:
        logger.info("Schedule %s was updated from its declaration in the code.", declaration.name)
    return int(done)


# The owner of a row


def _is_ours(row: Schedule) -> bool:
    """Return whether this service may retire a row that it does not declare."""
    return row.service == conf.service() != "" or (row.service == "" and _is_known(row))


def _may_take(row: Schedule) -> bool:
    """Return whether this service may define a row: the row has its name, or has none and no module of another project declares it."""
    if row.service:
        return row.service == conf.service()
    return row.source != Schedule.Source.CODE or _is_known(row)


def _is_known(row: Schedule) -> bool:
    """Return whether the module that declares a row belongs to this project, even if the module is gone."""
    module = row.declared_in or row.task.rpartition(".")[0]
    return module in sys.modules or module in conf.current().task_modules or apps.get_containing_app_config(module) is not None


def _this_service() -> str:
    return f"Service {conf.service()!r}" if conf.service() else "A project without SERVICE"


def _says_this_service(conflict: str) -> bool:
    """Return whether this service recorded a conflict."""
    if not conflict.startswith(f"{_this_service()} "):
        return False
    module = conflict.rpartition(" ")[2]
    return bool(conf.service()) or module in sys.modules or apps.get_containing_app_config(module) is not None


def _note_conflict(row: Schedule, text: str) -> int:
    """Write which other service declares a schedule; "" if none does any more."""
    if text and text != row.conflict:
        owner = f"service {row.service!r}" if row.service else f"the project with {row.declared_in or row.task}"
        logger.error("Schedule %s belongs to %s: %s. The row is unchanged. Rename one of them.", row.name, owner, text)
    if text == row.conflict:
        return 0
    return ticks.note_conflict(row.pk, text)
