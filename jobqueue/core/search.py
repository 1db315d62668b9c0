"""The search language for jobs: a text such as ``status:ERROR order_id=7 since:2h`` as a record of conditions.

A search has parts, separated by spaces, and a job must meet all of them. A part is the number or the public id of a
job, `FIELD:VALUE` with a field of `FIELDS`, or `ARGUMENT=VALUE`. A value with spaces is quoted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from jobqueue.core.masking import is_secret_name
from jobqueue.core.moments import FIRST, LAST, is_readable
from jobqueue.core.sentences import sentence
from jobqueue.core.states import Status, WaitingFor
from jobqueue.core.texts import clean, safe_repr
from jobqueue.exceptions import InvalidSearch

FIELDS: Final = (
    *("error", "kind", "target", "task", "queue", "tenant", "worker", "release", "status", "waiting", "since", "until", "ended"),
)
TIMES: Final = ("since", "until", "ended")
CHOICES: Final = {"status": tuple(Status.values), "waiting": tuple(value for value in WaitingFor.values if value)}
MAX_LENGTH: Final = 1000
MAX_PARTS: Final = 20
MAX_ID: Final = 2**63 - 1
MAX_SECONDS: Final = 50 * 366 * 86_400

_PART = re.compile(r'\s*((?:[^\s"]|"(?:[^"\\]|\\.)*")+)')
_NAMED = re.compile(r'([^\s":=]*)([:=])(.*)', re.DOTALL)
_PLAIN = re.compile(r"[\w.:=/@+-]+")
_NUMBER = re.compile(r"-?\d{1,18}(?:\.\d{1,18})?")
_LENGTH = re.compile(r"(\d{1,9})([smhdw])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_WORDS: Final = {"true": True, "false": False, "null": None}


@dataclass(frozen=True, slots=True)
class ArgumentCondition:
    """A value in the arguments: the name of the argument, then keys of objects (str) and indexes of lists (int)."""

    path: tuple[str | int, ...]
    values: tuple[Any, ...]  # the value must be one of these: `7` means the number and the text


@dataclass(frozen=True, slots=True)
class Search:
    """The conditions of a search. `texts` has the values by their fields, except for the times."""

    job_id: int | None = None
    texts: dict[str, str] = field(default_factory=dict)
    times: dict[str, datetime | timedelta] = field(default_factory=dict)  # a timedelta is counted back from now
    arguments: tuple[ArgumentCondition, ...] = ()

    @property
    def reads_masked(self) -> bool:
        """Whether it compares values that can contain secrets, so that each job must be read and masked to decide."""
        return bool(self.arguments) or "error" in self.texts


def parse(text: str, job_id_of: Callable[[str], int | None], secret: Iterable[str] = ()) -> Search:
    """Return the conditions of a text. `job_id_of` reads public ids; `secret` are more names of secret arguments.

    Raise `InvalidSearch`, which names the value, the rule and the fix.
    """
    if len(text) > MAX_LENGTH or clean(text) != text:
        raise InvalidSearch(
            sentence(
                "The search %(search)s must have at most %(most)s characters and no NUL. Search for less.",
                search=_shown(text),
                most=str(MAX_LENGTH),
            )
        )
    job_id: int | None = None
    texts, times, arguments = dict[str, str](), dict[str, datetime | timedelta](), list[ArgumentCondition]()
    more = tuple(secret)
    for part in _parts(text):
        if (named := _NAMED.fullmatch(part)) is None:
            job_id = _job_id(part, job_id, job_id_of)
        elif named[2] == "=":
            arguments.append(ArgumentCondition(_path(named[1], more), _values(named[3])))
        else:
            _add_field(named[1], _unquoted(named[3]), texts, times)
    return Search(job_id, texts, times, tuple(arguments))


def _parts(text: str) -> list[str]:
    conditions, position, end = list[str](), 0, len(text.rstrip())
    while position < end:
        part = _PART.match(text, position, end)
        if part is None:
            rest = _shown(text[position:end].strip())
            raise InvalidSearch(sentence('%(part)s has a quotation mark without its pair. Add the closing ", or write \\".', part=rest))
        conditions.append(part[1])
        position = part.end()
    if len(conditions) > MAX_PARTS:
        raise InvalidSearch(
            sentence("The search has %(number)s parts; it can have %(most)s. Remove some.", number=len(conditions), most=MAX_PARTS)
        )
    return conditions


def _job_id(text: str, before: int | None, job_id_of: Callable[[str], int | None]) -> int:
    found = job_id_of(text)
    digits = text.removeprefix("#")
    if found is None and digits.isascii() and digits.isdigit() and len(digits) <= 19 and 0 < int(digits) <= MAX_ID:
        found = int(digits)
    if found is None:
        raise InvalidSearch(
            sentence(
                "%(part)s is no part of a search; it must be the number or the public id of a job, FIELD:VALUE, or ARGUMENT=VALUE. For "
                "example, write task:%(task)s for a task.",
                part=_shown(text),
                task=text[:40],
            )
        )
    if before not in (None, found):
        raise InvalidSearch(
            sentence(
                "The search names the jobs %(first)s and %(second)s; it can name one. Search for each of them.",
                first=str(before),
                second=str(found),
            )
        )
    return found


def _add_field(name: str, value: str, texts: dict[str, str], times: dict[str, datetime | timedelta]) -> None:
    if name not in FIELDS:
        raise InvalidSearch(
            sentence(
                "%(name)s is no field of a search; the fields are %(fields)s. For an argument, write NAME=VALUE.",
                name=_shown(name),
                fields=", ".join(FIELDS),
            )
        )
    if name in texts or name in times:
        raise InvalidSearch(sentence("%(name)s: is given twice; each field can be given once. Remove one.", name=name))
    if name in TIMES:
        times[name] = time_of(name, value)
    elif name in CHOICES and value.upper() not in {choice.upper() for choice in CHOICES[name]}:
        raise InvalidSearch(
            sentence(
                "%(name)s is %(value)s; it must be one of %(choices)s.", name=name, value=_shown(value), choices=", ".join(CHOICES[name])
            )
        )
    elif not value and name not in ("tenant", "kind"):
        raise InvalidSearch(sentence("%(name)s: has no value. Write the value behind the colon, or remove it.", name=name))
    else:
        texts[name] = next((choice for choice in CHOICES.get(name, ()) if choice.upper() == value.upper()), value)


def part_of(name: str, value: str) -> str:
    """Return the part of a search for a field and its value."""
    if _PLAIN.fullmatch(value):
        return f"{name}:{value}"
    quoted = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'{name}:"{quoted}"'


def _path(name: str, secret: tuple[str, ...]) -> tuple[str | int, ...]:
    parts = name.removeprefix("args.").split(".")
    if not all(parts):
        raise InvalidSearch(sentence("%(name)s is no argument; write its name, as in order_id=7 or args.user.id=7.", name=_shown(name)))
    for part in parts:
        if is_secret_name(part, secret):
            raise InvalidSearch(
                sentence("%(name)s is the name of a secret, which no search can find. Search for another argument.", name=_shown(part))
            )
    first, *rest = parts
    return (first, *(int(part) if part.isascii() and part.isdigit() and len(part) < 7 else part for part in rest))


def _values(text: str) -> tuple[Any, ...]:
    value = _unquoted(text)
    if value != text:
        return (value,)
    if text in _WORDS:
        return (_WORDS[text], text)
    if _NUMBER.fullmatch(text):
        return (float(text) if "." in text else int(text), text)
    return (text,)


def time_of(name: str, value: str) -> datetime | timedelta:
    """Return the time, or the length of time until now, that a text such as "2h" or "2026-01-31" means."""
    if found := _LENGTH.fullmatch(value):
        seconds = int(found[1]) * _SECONDS[found[2]]
        if seconds <= MAX_SECONDS:
            return timedelta(seconds=seconds)
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        at = None
    if at is not None:
        at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
        if is_readable(at):
            return at
    raise InvalidSearch(
        sentence(
            "%(name)s is %(value)s; it must be a number with s, m, h, d or w (2h: two hours ago), or an ISO 8601 time, by default in UTC; "
            "it must lie between %(first)s and %(last)s. For example, 2h.",
            name=name,
            value=_shown(value),
            first=f"{FIRST:%Y-%m-%d}",
            last=f"{LAST:%Y-%m-%d}",
        )
    )


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL) if len(text) > 1 and text[0] == text[-1] == '"' else text


def _shown(text: str) -> str:
    return safe_repr(text if len(text) <= 80 else f"{text[:80]}…")
