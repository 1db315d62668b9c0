"""The form of a schedule: a registered task, its arguments as JSON with the secrets hidden, and when it is due."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from jobqueue import cron, schedules
from jobqueue.admin import known
from jobqueue.exceptions import InvalidOption, JobQueueError
from jobqueue.hiding import arguments_of
from jobqueue.masking import MASK
from jobqueue.models import Schedule

FIELDS = ("name", *schedules.DEFINITION, "enabled")
JSON_FIELDS = {"args": list, "kwargs": dict}


class ScheduleForm(forms.ModelForm):  # type: ignore[type-arg]
    """Let a person say what is enqueued when. A secret that is left hidden stays as it is stored, if nothing beside it is changed."""

    task = forms.ChoiceField(help_text="Only registered tasks can be chosen: those in tasks.py of an app, and in TASK_MODULES.")
    args = forms.CharField(required=False, widget=forms.Textarea(attrs={"rows": 3}), help_text="Positional arguments: a JSON list, [7].")
    kwargs = forms.CharField(
        required=False,
        widget=forms.Textarea(attrs={"rows": 5}),
        help_text='Arguments by name: a JSON object, {"customer_id": 7}. What is hidden stays as it is, if nothing beside it is changed.',
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
        row = Schedule(**{**self.stored, **self.cleaned_data})
        for fields, rule in self._rules(row):
            if any(field in self.errors for field in fields):
                continue  # it says the same again, or judges a value that is refused already
            try:
                rule()
            except JobQueueError as error:
                self.add_error(fields[0] if fields and fields[0] in self.fields else None, str(error))
                if fields == ("time_zone",):
                    row.time_zone = "UTC"  # so that the mistakes of the cron expression are shown, too
        # What differs from the row, not from what was shown: line ends and hidden secrets are no change.
        self.changed_data = [name for name, value in self.cleaned_data.items() if value != self.stored.get(name)]

    def _rules(self, row: Schedule) -> list[tuple[tuple[str, ...], Callable[[], object]]]:
        """Return the rules, each with the fields that it judges; none: its mistake stands above the form."""
        return [
            (("name",), lambda: schedules.check_name(row.name)),
            (("task",), lambda: check_schedulable(row.task)),
            (("time_zone",), lambda: cron.zone_of(row.time_zone)),
            (("cron",) if row.interval_seconds is None else ("interval_seconds",), lambda: schedules.check_timing(row)),
            (("kwargs", "args", "task"), lambda: schedules.check_arguments(row, known.entry(row.task))),
            *(((), rule) for rule in schedules.placement_rules(row)),
        ]

    def _read(self, name: str) -> Any:
        text, shown, stored = self.cleaned_data[name], self.shown[name], self.stored[name]
        if self.cleaned_data.get("task") != self.stored["task"]:
            stored = shown  # a hidden secret was meant for the other task, which may treat it with more care
        try:
            value = restored(json.loads(text) if text.strip() else JSON_FIELDS[name](), shown, stored)
            hidden = "" if value == self.stored[name] else place_of_mask(value, name)
        except (ValueError, RecursionError):
            raise ValidationError("This is no JSON: texts stand in double quotes, and it is true, false and null.") from None
        if hidden:
            why = "the task, or what stands beside it, was changed, and a secret is not moved to another place"
            raise ValidationError(f"{hidden[:200]} is hidden as {MASK}: write its value again, since {why}.")
        return value


def masked(row: Schedule) -> tuple[Any, Any]:
    """Return the arguments with their secrets hidden, positional ones by the names of the task's parameters."""
    return arguments_of(row)


def restored(given: Any, shown: Any, stored: Any) -> Any:
    """Return what was given, with the hidden values in place of their masks.

    A hidden value is taken from the row only if the object that holds it, and each list that it is in, are as they were shown: else the
    secret of one receiver would go to another one. What is not restored keeps its mask.
    """
    if given == shown:
        return stored
    objects = isinstance(given, dict) and isinstance(shown, dict) and isinstance(stored, dict)
    if objects and not any(_is_hidden(shown[name], stored.get(name)) for name in shown):
        return {name: restored(value, shown[name], stored[name]) if name in shown else value for name, value in given.items()}
    return given


def check_schedulable(path: str) -> None:
    """Refuse a task that is declared with ``schedulable=False``."""
    entry = known.entry(path)
    if entry is not None and not entry.schedulable:
        raise InvalidOption(f"The task {path!r} is declared with schedulable=False; choose another task, or change its declaration.")


def _is_hidden(shown: Any, stored: Any) -> bool:
    return not isinstance(shown, dict | list) and shown != stored


def place_of_mask(value: Any, name: str) -> str:
    """Return where the first mask in a value is, such as ``kwargs.feeds[0].token``; empty if there is none."""
    if isinstance(value, dict):
        inside = [(item, f"{name}.{key}") for key, item in value.items()]
    elif isinstance(value, list):
        inside = [(item, f"{name}[{at}]") for at, item in enumerate(value)]
    else:
        return name if isinstance(value, str) and MASK in value else ""
    return next((found for item, place in inside if (found := place_of_mask(item, place))), "")


def _choices(stored: str) -> list[tuple[str, str]]:
    paths = [path for path in known.paths() if (entry := known.entry(path)) is None or entry.schedulable or path == stored]
    gone = [(stored, f"{stored} (not registered)")] if stored and stored not in paths else []
    return [("", "---------"), *gone, *((path, path) for path in paths)]
