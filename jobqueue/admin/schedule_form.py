"""The form of a schedule: a registered task, its arguments as JSON with the secrets hidden, and when it is due."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from jobqueue import cron, schedules
from jobqueue.admin import known
from jobqueue.exceptions import JobQueueError
from jobqueue.hiding import arguments_of
from jobqueue.masking import MASK
from jobqueue.models import Schedule

FIELDS = ("name", *schedules.DEFINITION, "enabled")
JSON_FIELDS = {"args": list, "kwargs": dict}


class ScheduleForm(forms.ModelForm):  # type: ignore[type-arg]
    """Let a person say what is enqueued when. A secret that is left hidden stays as it is stored."""

    task = forms.ChoiceField(help_text="Only registered tasks can be chosen: those in tasks.py of an app, and in TASK_MODULES.")
    args = forms.CharField(required=False, widget=forms.Textarea(attrs={"rows": 3}), help_text="Positional arguments: a JSON list, [7].")
    kwargs = forms.CharField(
        required=False,
        widget=forms.Textarea(attrs={"rows": 5}),
        help_text='Arguments by name: a JSON object, {"customer_id": 7}. What is hidden stays as it is stored, where you leave it hidden.',
    )

    class Meta:
        model = Schedule
        fields = FIELDS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Fill in the choices, and the arguments with their secrets hidden."""
        super().__init__(*args, **kwargs)
        stored = self.instance
        self.stored = {name: getattr(stored, name) for name in FIELDS}
        self.shown = dict(zip(JSON_FIELDS, masked(stored), strict=True))
        if "task" in self.fields:
            self.fields["task"].choices = _choices(stored.task)  # type: ignore[attr-defined]
        for name, value in self.shown.items():
            self.initial[name] = json.dumps(value, ensure_ascii=False)

    def clean_args(self) -> Any:
        """Read the positional arguments."""
        return self._read("args")

    def clean_kwargs(self) -> Any:
        """Read the arguments by name."""
        return self._read("kwargs")

    def clean(self) -> None:
        """Refuse what no job could come from."""
        super().clean()
        self._validate_constraints = False  # the rules below say the same, with the fix
        if not self.errors:
            row = Schedule(**{**self.stored, **self.cleaned_data})
            for field, rule in self._rules(row):
                try:
                    rule()
                except JobQueueError as error:
                    self.add_error(field if field in self.fields else None, str(error))
                    break
        # What differs from the row, not from what was shown: line ends and hidden secrets are no change.
        self.changed_data = [name for name, value in self.cleaned_data.items() if value != self.stored.get(name)]

    def _rules(self, row: Schedule) -> list[tuple[str | None, Callable[[], object]]]:
        return [
            ("name", lambda: schedules.check_name(row.name)),
            ("time_zone", lambda: cron.zone_of(row.time_zone)),
            ("cron" if row.interval_seconds is None else "interval_seconds", lambda: schedules.check_timing(row)),
            ("kwargs", lambda: schedules.check_arguments(row, known.entry(row.task))),
            (None, lambda: schedules.check(row)),
        ]

    def _read(self, name: str) -> Any:
        text, shown, stored = self.cleaned_data[name], self.shown[name], self.stored[name]
        if self.cleaned_data.get("task") != self.stored["task"]:
            stored = shown  # a hidden secret was meant for the other task, which may treat it with more care
        try:
            value = restored(json.loads(text) if text.strip() else JSON_FIELDS[name](), shown, stored)
            hidden = MASK in json.dumps(value) and value != self.stored[name]
        except (ValueError, RecursionError):
            raise ValidationError("This is no JSON: texts stand in double quotes, and it is true, false and null.") from None
        if hidden:
            raise ValidationError(f"A secret is hidden as {MASK} where none is stored, or the task is another: write its value.")
        return value


def masked(row: Schedule) -> tuple[Any, Any]:
    """Return the arguments with their secrets hidden, positional ones by the names of the task's parameters."""
    return arguments_of(row)


def restored(given: Any, shown: Any, stored: Any) -> Any:
    """Return what was given, with what is stored in each place that was left as it was shown."""
    if given == shown:
        return stored
    if isinstance(given, dict) and isinstance(shown, dict) and isinstance(stored, dict):
        return {name: restored(value, shown[name], stored[name]) if name in shown else value for name, value in given.items()}
    if isinstance(given, list) and isinstance(shown, list) and isinstance(stored, list):
        return [restored(value, shown[at], stored[at]) if at < len(shown) else value for at, value in enumerate(given)]
    return given


def _choices(stored: str) -> list[tuple[str, str]]:
    paths = known.paths()
    gone = [(stored, f"{stored} (not registered)")] if stored and stored not in paths else []
    return [("", "---------"), *gone, *((path, path) for path in paths)]
