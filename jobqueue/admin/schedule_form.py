"""The form of a schedule: a registered task, its arguments as JSON with masked secrets, and its timing."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, ClassVar

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _lazy
from django.utils.translation import ngettext

from jobqueue.access.hidden_values import names_other_place, places_of_masks, restored
from jobqueue.access.hiding import arguments_of
from jobqueue.admin import task_choices
from jobqueue.admin.labels import error_text, translated
from jobqueue.core import cron
from jobqueue.core.masking import MASK
from jobqueue.core.sentences import sentence
from jobqueue.exceptions import InvalidOption, JobQueueError
from jobqueue.models import Schedule
from jobqueue.schedules import declarations

FIELDS = ("name", *declarations.DEFINITION, "enabled")
JSON_FIELDS = {"args": list, "kwargs": dict}
MAX_NAMED = 50


class ScheduleForm(forms.ModelForm):  # type: ignore[type-arg]
    """The form of a schedule; an unchanged mask keeps the stored secret, if no change can send it to another receiver."""

    task = forms.ChoiceField(
        label=_lazy("Task"), help_text=_lazy("Only registered tasks can be chosen: those in tasks.py of an app, and in TASK_MODULES.")
    )
    args = forms.CharField(
        required=False,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text=_lazy("Positional arguments: a JSON list, [7]."),
    )
    kwargs = forms.CharField(
        required=False,
        widget=forms.Textarea(attrs={"rows": 5}),
        help_text=_lazy(
            'Arguments by name: a JSON object, {"customer_id": 7}. A hidden value is kept if only values that it does not '
            "depend on are changed."
        ),
    )

    class Meta:
        model = Schedule
        fields = FIELDS
        labels: ClassVar = {
            "name": _lazy("Name"),
            "queue": _lazy("Queue"),
            "priority": _lazy("Priority"),
            "tenant": _lazy("Tenant"),
            "target": _lazy("Target"),
            "cron": _lazy("Cron"),
            "interval_seconds": _lazy("Interval seconds"),
            "time_zone": _lazy("Time zone"),
            "missed": _lazy("Missed"),
            "missed_limit": _lazy("Missed limit"),
            "enabled": _lazy("Enabled"),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Set the choices, and the arguments with masked secrets."""
        super().__init__(*args, **kwargs)
        stored = self.instance
        self.stored = {name: getattr(stored, name) for name in FIELDS}
        self.shown = dict(zip(JSON_FIELDS, masked(stored), strict=True))
        if "task" in self.fields:
            self.fields["task"].choices = _choices(stored.task)  # type: ignore[attr-defined]
        if "missed" in self.fields:
            self.fields["missed"].choices = [(value, translated(label)) for value, label in Schedule.Missed.choices]  # type: ignore[attr-defined]
        if "time_zone" in self.fields:
            self.fields["time_zone"].widget.attrs["list"] = "jq-zones"
        for name, value in self.shown.items():
            self.initial[name] = json.dumps(value, ensure_ascii=False)

    def clean_args(self) -> Any:
        """Parse the positional arguments."""
        return self._read("args")

    def clean_kwargs(self) -> Any:
        """Parse the keyword arguments."""
        return self._read("kwargs")

    def clean(self) -> None:
        """Reject a definition that cannot create a job."""
        super().clean()
        self._restore()
        self._validate_constraints = False  # the rules below report the same, with the fix
        row = Schedule(**{**self.stored, **self.cleaned_data})
        for fields, rule in self._rules(row):
            if any(field in self.errors for field in fields):
                continue  # it would report the same again, or check a value that is rejected already
            try:
                rule()
            except JobQueueError as error:
                self.add_error(fields[0] if fields and fields[0] in self.fields else None, error_text(error))
                if fields == ("time_zone",):
                    row.time_zone = "UTC"  # so that errors of the cron expression are reported, too
        # Compared with the row, not with the form: line ends and masked secrets are no change.
        self.changed_data = [name for name, value in self.cleaned_data.items() if value != self.stored.get(name)]

    def _rules(self, row: Schedule) -> list[tuple[tuple[str, ...], Callable[[], object]]]:
        """Return the rules, each with the fields that it checks; without fields, its error is shown above the form."""
        return [
            (("name",), lambda: declarations.check_name(row.name)),
            (("task",), lambda: check_schedulable(row.task)),
            (("time_zone",), lambda: cron.zone_of(row.time_zone)),
            (("cron",) if row.interval_seconds is None else ("interval_seconds",), lambda: declarations.check_timing(row)),
            (("kwargs", "args", "task"), lambda: declarations.check_arguments(row, task_choices.entry(row.task))),
            *(((), rule) for rule in declarations.placement_rules(row)),
        ]

    def _read(self, name: str) -> Any:
        text = self.cleaned_data[name]
        try:
            value = json.loads(text) if text.strip() else JSON_FIELDS[name]()
            places_of_masks(value, name)
        except (ValueError, RecursionError):
            raise ValidationError(_("This is not valid JSON. Put strings in double quotes, and write true, false and null.")) from None
        return value

    def _restore(self) -> None:
        """Restore the stored secrets of the masks, and report all masks that cannot be restored."""
        given = {name: self.cleaned_data[name] for name in JSON_FIELDS if name in self.cleaned_data}
        other_task = self.cleaned_data.get("task") != self.stored["task"]
        try:
            moved = {name for name, value in given.items() if names_other_place(value, self.shown[name])}
            self._restore_each(given, moved, other_task=other_task)
        except RecursionError:
            self.add_error("kwargs", _("The arguments are nested too deeply."))

    def _restore_each(self, given: dict[str, Any], moved: set[str], *, other_task: bool) -> None:
        for name, value in given.items():
            # A masked secret was meant for the task of the row: another task can treat it less carefully.
            stored = self.shown[name] if other_task else self.stored[name]
            result = self.cleaned_data[name] = restored(value, self.shown[name], stored, moved=bool(moved - {name}))
            hidden = [] if result == self.stored[name] else places_of_masks(result, name)
            if hidden:
                self.add_error(name, _enter_again(hidden))


def _enter_again(places: list[str]) -> str:
    names = ", ".join(place[:200] for place in places[:MAX_NAMED])
    more = _(" and %(number)s more") % {"number": len(places) - MAX_NAMED} if len(places) > MAX_NAMED else ""
    text = ngettext(
        "%(names)s is hidden as %(mask)s: write its value again, since the task or a value beside it was changed, and a secret is not "
        "moved to another place.",
        "%(names)s are hidden as %(mask)s: write their values again, since the task or a value beside it was changed, and a secret is not "
        "moved to another place.",
        len(places),
    )
    return text % {"names": f"{names}{more}", "mask": MASK}


def masked(row: Schedule) -> tuple[Any, Any]:
    """Return the arguments with masked secrets, positional ones by the names of the task's parameters."""
    return arguments_of(row)


def check_schedulable(path: str) -> None:
    """Reject a task that is declared with ``schedulable=False``."""
    entry = task_choices.entry(path)
    if entry is not None and not entry.schedulable:
        raise InvalidOption(
            sentence(
                "The task %(task)s is declared with schedulable=False; choose another task, or change its declaration.", task=repr(path)
            )
        )


def _choices(stored: str) -> list[tuple[str, str]]:
    paths = [path for path in task_choices.paths() if (entry := task_choices.entry(path)) is None or entry.schedulable or path == stored]
    unregistered = [(stored, _("%(task)s (not registered)") % {"task": stored})] if stored and stored not in paths else []
    return [("", "---------"), *unregistered, *((path, path) for path in paths)]
