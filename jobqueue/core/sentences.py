"""Sentences for people: each is an English text that can also be shown in the language of a reader.

A sentence is a str. Commands, REST, logs and the database get its English text without any rule to follow, in every
process and under every active language. Only the admin translates it, for one reader, with `translated`. The texts are
literals of `sentence` and `counted`, so that ``make messages`` finds them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self


class AtLeast(int):
    """A number that was counted only up to a bound, so that there can be more."""


class Sentence(str):
    """An English text, with the messages and the values that it was made of.

    An int is shown with separators, so an identifier is given as text.
    """

    __slots__ = ("messages", "number", "values")
    messages: tuple[str, ...]  # one, or the singular and the plural
    number: int  # that decides between these
    values: dict[str, Any]

    @classmethod
    def of(cls, messages: tuple[str, ...], number: int, values: dict[str, Any]) -> Self:
        """Return the sentence of a message with its values."""
        text = messages[0] if len(messages) == 1 or number == 1 else messages[1]
        made = cls(text % {name: _english(value) for name, value in values.items()})
        made.messages, made.number, made.values = messages, number, values
        return made

    def mapped(self, change: Callable[[str], str]) -> Self:
        """Return this sentence with changed texts in it, such as masked ones."""
        values = {name: changed(value, change) if isinstance(value, str) else value for name, value in self.values.items()}
        return self.of(self.messages, self.number, values)


def sentence(message: str, **values: Any) -> Sentence:
    """Return a sentence; `values` fill its named placeholders."""
    return Sentence.of((message,), 1, values)


def counted(one: str, several: str, number: int, **values: Any) -> Sentence:
    """Return a sentence about a number of things, which is the value `number` of its placeholders."""
    return Sentence.of((one, several), number, {"number": number, **values})


def joined(first: str, second: str) -> Sentence:
    """Return two sentences as one text."""
    return Sentence.of(("%(first)s %(second)s",), 1, {"first": first, "second": second})


def bounded(number: int, more: bool) -> int:
    """Return a number that says itself whether there can be more."""
    return AtLeast(number) if more else number


def message_of(error: Exception) -> str:
    """Return the message of an exception, as the sentence that it was raised with if it is one."""
    message = error.args[0] if error.args else ""
    return message if isinstance(message, Sentence) else str(error)


def changed(text: str, change: Callable[[str], str]) -> str:
    """Return a text or a sentence with `change` applied to its texts."""
    if isinstance(text, Sentence):
        text = text.mapped(change)
    new = change(text)
    return text if new == text else new  # a sentence that needs no change as a whole stays translatable


def translated(text: str, one: Callable[[str], str], several: Callable[[str, str, int], str], value_of: Callable[[Any], str]) -> str:
    """Return a sentence in the language of two functions, as of gettext and ngettext; `value_of` formats texts and numbers."""
    if not isinstance(text, Sentence):
        return one(text)
    first, *plural = text.messages
    message = several(first, plural[0], text.number) if plural else one(first)
    values = {
        name: translated(value, one, several, value_of) if isinstance(value, Sentence) else value_of(value)
        for name, value in text.values.items()
    }
    return message % values


def _english(value: Any) -> str:
    return f"{value:,}{'+' if isinstance(value, AtLeast) else ''}" if isinstance(value, int) else str(value)
