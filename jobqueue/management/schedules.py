"""The subcommands ``schedules``, ``run-schedule``, ``enable-schedule`` and ``disable-schedule`` of ``manage.py jobqueue``."""

from __future__ import annotations

from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandError

from jobqueue.core.texts import safe_repr
from jobqueue.management import tables
from jobqueue.models import Schedule
from jobqueue.schedules import ticks
from jobqueue.schedules.history import HistoryEntry, history
from jobqueue.schedules.jobs import run_schedule_now

HISTORY_COLUMNS = ("time (UTC)", "job", "outcome", "late by")


def add_schedules_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of ``schedules``."""
    parser.add_argument("schedule", nargs="?", metavar="SCHEDULE", help="show the history of the schedule with this name")


def schedules(options: dict[str, Any]) -> tuple[Any, list[str], bool]:
    """Show the schedules, or one of them with its history."""
    name, states = options["schedule"], ticks.schedule_states()
    if name is None:
        data = [_as_json(state) for state in states]
        return data, ["Schedules", *_table(states)], True
    row = _named(name)
    chosen = [state for state in states if state.name == str(row)]
    entries = history(None, row)
    lines = [*_table(chosen), "", "History", *tables.table(HISTORY_COLUMNS, [_cells(entry) for entry in entries])]
    shown = [{**asdict(entry), "nominal_at": tables.iso(entry.nominal_at)} for entry in entries]
    return {**_as_json(chosen[0]), "history": shown}, lines, True


def add_name(parser: ArgumentParser) -> None:
    """Add the name of a schedule."""
    parser.add_argument("schedule", metavar="SCHEDULE", help="the name of the schedule")


def act(options: dict[str, Any]) -> tuple[Any, list[str], bool]:
    """Enqueue a job of a schedule now, or enable or disable the schedule."""
    name = options["schedule"]
    data, line = VERBS[options["what"]](name)
    return {"id": _named(name).pk, "schedule": name, **data}, [line], True


def _run_now(name: str) -> tuple[dict[str, Any], str]:
    job_id = run_schedule_now(name)
    return {"verdict": "done", "reason": f"as job {job_id}", "job": job_id}, f"Schedule {safe_repr(name)} was run as job {job_id}."


def _enable(name: str) -> tuple[dict[str, Any], str]:
    answer = ticks.enable_schedule(name)
    return _decided(answer, f"enabled; its next time is {tables.iso(answer.next_at) or 'not known yet'}")


def _disable(name: str) -> tuple[dict[str, Any], str]:
    return _decided(ticks.disable_schedule(name), "disabled; its existing jobs continue")


def _decided(answer: ticks.ScheduleAnswer, now: str) -> tuple[dict[str, Any], str]:
    data = {"verdict": "done" if answer.changed else "no change", "reason": "", "next_at": tables.iso(answer.next_at)}
    return data, f"Schedule {safe_repr(answer.name)} is {now}{'' if answer.changed else ' (no change)'}."


VERBS = {"run-schedule": _run_now, "enable-schedule": _enable, "disable-schedule": _disable}


def _named(name: str) -> Schedule:
    row = None if "\0" in name else Schedule.objects.current.filter(name=name).first()
    if row is None:
        raise CommandError(f"There is no schedule {safe_repr(name[:200])}. 'jobqueue schedules' lists them.")
    return row


def _table(states: list[ticks.ScheduleState]) -> list[str]:
    return tables.table(tables.SCHEDULE_COLUMNS, [tables.schedule_cells(state) for state in states])


def _as_json(state: ticks.ScheduleState) -> dict[str, Any]:
    return {**asdict(state), **{name: tables.iso(getattr(state, name)) for name in ("next_at", "last_at")}}


def _cells(entry: HistoryEntry) -> tuple[str, ...]:
    if entry.missed:
        return (tables.brief(entry.nominal_at), "-", f"{entry.missed:,} missed", "-")
    return (tables.brief(entry.nominal_at), str(entry.job_id or "-"), entry.status or "deleted", f"{entry.late_seconds:.1f} s")
