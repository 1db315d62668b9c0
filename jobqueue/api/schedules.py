"""The handlers of the endpoints of schedules."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

from django.http import HttpRequest

from jobqueue.api import params
from jobqueue.api.params import Given
from jobqueue.api.responses import ApiError
from jobqueue.models import Schedule
from jobqueue.schedules.history import history
from jobqueue.schedules.ticks import schedule_states

Reply = tuple[int, dict[str, Any]]


def list_schedules(request: HttpRequest, user: Any, given: Given) -> Reply:
    """Return the schedules by name."""
    return 200, {"schedules": [_plain(state) for state in schedule_states()]}


def show_schedule(request: HttpRequest, user: Any, given: Given) -> Reply:
    """Return one schedule with its history."""
    name = params.schedule(given["schedule"])
    row = Schedule.objects.current.filter(name=name).first()
    state = None if row is None else next((one for one in schedule_states() if one.name == str(row)), None)
    if row is None or state is None:
        raise ApiError(404, f"There is no schedule {params.shown(name)}.")
    return 200, {**_plain(state), "history": [_plain(entry) for entry in history(user, row)]}


def _plain(record: Any) -> dict[str, Any]:
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in asdict(record).items()}
