"""Rows that no constraint has checked: written by raw SQL before there was one, or while it was dropped."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.apps import apps
from django.db import connection, models

MODELS = tuple(apps.get_app_config("jobqueue").get_models())


@contextmanager
def unchecked() -> Iterator[None]:
    """Allow rows that the CHECK constraints of the tables refuse; on PostgreSQL these are dropped for good."""
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute("PRAGMA ignore_check_constraints = ON")
        else:
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")  # a table with checks that are due cannot be altered
            for model in MODELS:
                for one in (one for one in model._meta.constraints if isinstance(one, models.CheckConstraint)):
                    cursor.execute(f"ALTER TABLE {model._meta.db_table} DROP CONSTRAINT IF EXISTS {one.name}")
        try:
            yield
        finally:
            if connection.vendor == "sqlite":
                with connection.cursor() as last:  # the connection may be another one by now
                    last.execute("PRAGMA ignore_check_constraints = OFF")


def write(model: Any, pk: Any, column: str, value: str) -> None:
    """Set a column to an expression of SQL."""
    key = model._meta.pk
    with connection.cursor() as cursor:
        cursor.execute(
            f'UPDATE {model._meta.db_table} SET "{column}" = {value} WHERE "{key.column}" = %s', [key.get_db_prep_value(pk, connection)]
        )


_REFUSING = {
    "postgresql": (
        "SET CONSTRAINTS ALL IMMEDIATE",
        "CREATE OR REPLACE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'never'; END $$",
        "CREATE TRIGGER refuse BEFORE UPDATE ON jobqueue_job FOR EACH ROW WHEN ({}) EXECUTE FUNCTION refuse_change()",
    ),
    "sqlite": ("CREATE TRIGGER refuse BEFORE UPDATE ON jobqueue_job WHEN {} BEGIN SELECT RAISE(ABORT, 'never'); END",),
}


@contextmanager
def refusing_changes(condition: str) -> Iterator[None]:
    """Make the database refuse each change of a job that fulfills a condition on `old` and `new`."""
    with connection.cursor() as cursor:
        for statement in _REFUSING[connection.vendor]:
            cursor.execute(statement.format(condition))
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP TRIGGER refuse" if connection.vendor == "sqlite" else "DROP TRIGGER refuse ON jobqueue_job")
            if connection.vendor == "postgresql":
                cursor.execute("DROP FUNCTION refuse_change()")
