"""Translate the labels and sentences that the admin shares with the command line and REST, which stay English."""

from __future__ import annotations

from typing import Any

from django.utils.translation import get_language_bidi, gettext, gettext_noop, ngettext

from jobqueue.admin import figures
from jobqueue.core import sentences
from jobqueue.core.states import Status
from jobqueue.core.texts import clean, shorten

# The labels of the models' choices, so that the catalogues have them.
LABELS = frozenset(
    {
        gettext_noop("Pending"),
        gettext_noop("Queued"),
        gettext_noop("Running"),
        gettext_noop("Paused"),
        gettext_noop("Error"),
        gettext_noop("Success"),
        gettext_noop("Canceled"),
        gettext_noop("its time"),
        gettext_noop("its children"),
        gettext_noop("its target"),
        gettext_noop("run again"),
        gettext_noop("hold for an operator"),
        gettext_noop("Open"),
        gettext_noop("Done"),
        gettext_noop("Stopped"),
        gettext_noop("Failed"),
        gettext_noop("Delivered"),
        gettext_noop("skip them"),
        gettext_noop("run once, late"),
        gettext_noop("run all, up to a limit"),
        gettext_noop("Draining"),
        gettext_noop("Drained"),
        gettext_noop("stopped"),
        gettext_noop("drained, then stopped"),
        gettext_noop("failed"),
        gettext_noop("killed"),
        gettext_noop("silent for a day"),
        gettext_noop("status"),
        gettext_noop("waiting"),
        gettext_noop("queue"),
        gettext_noop("task"),
        gettext_noop("target"),
        gettext_noop("tenant"),
        gettext_noop("ended within"),
        gettext_noop("before"),
    }
)


def translated(label: object) -> str:
    """Return a label or a sentence in the language of the reader."""
    return sentences.translated(label if isinstance(label, str) else str(label), gettext, ngettext, _value)


def error_text(error: Exception) -> str:
    """Return the message of an exception in the language of the reader, if it is a sentence."""
    message = sentences.message_of(error)
    return translated(message) if isinstance(message, sentences.Sentence) else message


def _value(value: Any) -> str:
    if isinstance(value, int):
        return figures.count(value, more=isinstance(value, sentences.AtLeast))
    # Isolated, as by <bdi>: a name in a right-to-left sentence would otherwise move its punctuation.
    return f"\N{FIRST STRONG ISOLATE}{value}\N{POP DIRECTIONAL ISOLATE}" if value and get_language_bidi() else str(value)


def status_label(status: str) -> str:
    """Return the label of a job's status; for a text that is no status, such as raw SQL can store, the text itself."""
    known = dict(Status.choices)
    return gettext(str(known[status])) if status in known else clean(shorten(status, 50))
