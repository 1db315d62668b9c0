"""Turn arguments, results and metadata into JSON that any database returns equal to the input.

``json.dumps`` alone is not enough: it turns the key 1 into "1", writes NaN, and accepts NUL characters, which
PostgreSQL then refuses, so that the caller's transaction fails. Therefore only these types are accepted: None,
bool, int, finite float, str, sequences (stored as lists) and mappings with str keys (stored as dicts). Instances
of subclasses are accepted if they equal their stored form. PostgreSQL does not keep the order of the keys of a
mapping and the sign of -0.0, because jsonb has neither.

The usual small value costs one check of its types and one call to the encoder. Only if that check finds a problem
does a second, slow walk search for its place, so that the error can name it. Errors never show values, because these
may be secrets.
"""

import json
import math
import re
from collections import UserString
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeGuard

from django.utils.functional import LazyObject

from jobqueue.core.texts import exception_summary
from jobqueue.core.unstorable import fix, not_run, shown_key, type_name
from jobqueue.exceptions import Interrupted, InvalidArgumentType, InvalidArgumentValue, JobQueueError, ResultNotStorable

MAX_BYTES = 1_000_000
MAX_DEPTH = 100
MAX_DIGITS = 4300
# A value takes at least two bytes of JSON, with its comma. The count bounds the cost of a small object that refers to
# itself a million times.
MAX_VALUES = MAX_BYTES // 2 + 10

_SCALARS = frozenset({type(None), bool, int, float, str})
# These types are sequences, but are not stored as lists of their members.
_NOT_LISTS = (str, bytes, bytearray, memoryview, UserString)
_ONLY_STR = frozenset({str})
_TOO_BIG = 10**MAX_DIGITS
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_MANY_DIGITS = re.compile(rf"\d{{{MAX_DIGITS + 1}}}")
_STRING_OR_BIG_FLOAT = re.compile(r'"(?:[^"\\]|\\.)*"|-?\d(?:\.\d+)?e\+\d+')


@dataclass(frozen=True, slots=True)
class _Subject:
    """The value that is being stored, for its errors."""

    name: str
    """The name of the value in errors."""
    sentence: str
    """The start of the errors."""
    wrong_type: type[JobQueueError]
    wrong_value: type[JobQueueError]
    remedy: str
    """The fix for a value that is too large."""


_REFERENCE = "Store the data in a model or a file and pass its id."
_ARGS = _Subject("args", "The job cannot be enqueued:", InvalidArgumentType, InvalidArgumentValue, _REFERENCE)
_KWARGS = _Subject("kwargs", "The job cannot be enqueued:", InvalidArgumentType, InvalidArgumentValue, _REFERENCE)
_METADATA = _Subject("metadata", "The metadata cannot be stored:", InvalidArgumentType, InvalidArgumentValue, _REFERENCE)
_RETURN = "Store the data in a model or a file and return its id."
_RESULT = _Subject("result", "The task ran, but its result cannot be stored:", ResultNotStorable, ResultNotStorable, _RETURN)
_CHECKPOINT = _Subject("checkpoint", "The checkpoint cannot be stored:", InvalidArgumentType, InvalidArgumentValue, _REFERENCE)


def dumps_arguments(args: Sequence[object], kwargs: Mapping[str, object]) -> tuple[str, str]:
    """Return the arguments of a job as JSON texts; raise InvalidArgumentType or InvalidArgumentValue, which name the place."""
    return (
        _dumps(args if type(args) in (list, tuple) else list(args), _ARGS) if args else "[]",
        _dumps(kwargs if type(kwargs) is dict else dict(kwargs), _KWARGS) if kwargs else "{}",
    )


def dumps_metadata(metadata: Mapping[str, object]) -> str:
    """Return the metadata of a job as a JSON text; raise InvalidArgumentType or InvalidArgumentValue, which name the place."""
    if not isinstance(metadata, Mapping):
        raise InvalidArgumentType(f"{_METADATA.sentence} it is a {type_name(metadata)}; it must be a dict.")
    return _dumps(metadata if type(metadata) is dict else dict(metadata), _METADATA)


def dumps_checkpoint(data: object) -> str:
    """Return the checkpoint of a phase as a JSON text; raise InvalidArgumentType or InvalidArgumentValue, which name the place."""
    return "null" if data is None else _dumps(data, _CHECKPOINT)


def dumps_result(value: object) -> str:
    """Return the result of a task as a JSON text; raise ResultNotStorable, which names the place."""
    try:
        return "null" if value is None else _dumps(value, _RESULT)
    except (ResultNotStorable, Interrupted):
        raise
    except BaseException as error:  # methods of a class of the user's project may raise anything
        raise ResultNotStorable(f"{_RESULT.sentence} reading it raised {exception_summary(error)}.") from error


def _dumps(value: object, subject: _Subject) -> str:
    """Return the value as a JSON text of at most MAX_BYTES, or reject it."""
    try:
        return _dumps_checked(value, subject)
    except JobQueueError:
        raise
    except Exception as error:  # methods of a class of the user's project may raise anything
        raise subject.wrong_value(f"{subject.sentence} reading {subject.name} raised {exception_summary(error)}.") from error


def _dumps_checked(value: object, subject: _Subject) -> str:
    # The list or dict around args and kwargs does not count as a level of the caller's value.
    depth = MAX_DEPTH + 1 if subject is _ARGS or subject is _KWARGS else MAX_DEPTH
    if not (_is_flat(value) or _is_plain(value, depth)):
        _Search(subject).search(value, subject.name, depth)
    try:
        text = _encode(value)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        _Search(subject).search(value, subject.name, depth)
        raise subject.wrong_value(f"{subject.sentence} {subject.name} is not JSON: {error}") from error
    _check_size(text, subject)
    # Cheap hints in the text: an escaped NUL or surrogate (or a harmless similar text), and a number that no reader
    # accepts.
    if "\\u0000" in text or "\\ud" in text or (len(text) > MAX_DIGITS and _MANY_DIGITS.search(text)):
        _Search(subject).search(value, subject.name, depth)
    if "e+" in text:
        text = _STRING_OR_BIG_FLOAT.sub(_spelled_out, text)
        _check_size(text, subject)
    return text


def _check_size(text: str, subject: _Subject) -> None:
    """Reject a text of more than MAX_BYTES; it is ASCII, so its length is its size."""
    if len(text) > MAX_BYTES:
        raise subject.wrong_value(
            f"{subject.sentence} {subject.name} takes {len(text):,} bytes as JSON, the limit is {MAX_BYTES:,}. {subject.remedy}"
        )


def _is_flat(value: Any) -> bool:
    """Return whether a value is a list, tuple or dict of scalars only: the usual case, checked without a loop."""
    kind = type(value)
    if kind is dict:
        return _ONLY_STR.issuperset(map(type, value)) and _SCALARS.issuperset(map(type, value.values()))
    return (kind is list or kind is tuple) and _SCALARS.issuperset(map(type, value))


def _is_plain(value: object, depth: int) -> bool:
    """Return whether a value consists of exactly the JSON types, at most ``depth`` levels deep; check level by level."""
    if type(value) in _SCALARS:
        return True
    level, seen = [value], 0
    for _ in range(depth):
        inner: list[object] = []
        for container in level:
            items: Iterable[object]
            if type(container) is dict:
                if not _ONLY_STR.issuperset(map(type, container)):
                    return False
                items = container.values()
            elif type(container) is list or type(container) is tuple:
                items = container
            else:
                return False
            seen += len(container) + 1
            if seen > MAX_VALUES:
                return False
            if not _SCALARS.issuperset(map(type, items)):
                inner += [item for item in items if type(item) not in _SCALARS]
        if not inner:
            return True
        level = inner
    return False


class _Search:
    """A walk through a value that raises the error of the first part that cannot be stored, if there is one."""

    def __init__(self, subject: _Subject) -> None:
        """Start counting the values."""
        self.subject = subject
        self.seen = 0

    def search(self, value: Any, where: str, depth: int) -> None:
        """Reject the value, or search its members."""
        self.seen += 1
        if self.seen > MAX_VALUES:
            self.refuse_value(self.subject.name, f"holds more than {MAX_VALUES:,} values. {self.subject.remedy}")
        kind = type(value)  # not isinstance(): a lazy object has the class of what it wraps, but the encoder needs a real text
        if issubclass(kind, str):
            self.string(value, where)
        elif issubclass(kind, int):
            self.integer(value, where)
        elif issubclass(kind, float):
            self.number(value, where)
        elif _is_container(value):
            if depth <= 0:
                self.refuse_value(
                    where.partition("[")[0],
                    f"is nested deeper than {MAX_DEPTH} levels, or contains itself. Flatten it, or pass the id of a stored record.",
                )
            self.container(value, where, depth - 1)
        elif value is not None:
            self.refuse_type(where, value)

    def container(self, value: Any, where: str, depth: int) -> None:
        """Search the members of a mapping or sequence."""
        if type(value) is not dict and issubclass(type(value), dict) and list(value.items()) != list(dict.items(value)):
            self.refuse_type(where, value)
        if not isinstance(value, Mapping):
            for index, item in enumerate(value):
                self.search(item, f"{where}[{index}]", depth)
            return
        for key, item in value.items():
            if not isinstance(key, str):
                raise self.subject.wrong_type(
                    f"{self.subject.sentence} {where} has a key of type {type_name(key)}; JSON has only str keys. "
                    "Use str(key), and convert it back in the task."
                )
            inside = f'{where}["{shown_key(key)}"]'
            self.string(key, f"the key of {inside}")
            self.search(item, inside, depth)

    def string(self, value: str, where: str) -> None:
        """Reject text that no database stores."""
        match = _UNSTORABLE.search(str.__str__(value))
        if match:
            character = "a NUL character" if match.group() == "\0" else "half of a surrogate pair"
            fix = "Remove it" if match.group() == "\0" else 'Decode the text with errors="replace"'
            self.refuse_value(
                where, f"holds {character} at position {match.start()}, which databases refuse. {fix}, or pass the bytes as base64."
            )
        self.same(value, str.__str__(value), where)

    def integer(self, value: int, where: str) -> None:
        """Reject numbers that Python itself would not parse."""
        if value.bit_length() > MAX_DIGITS * 4 or abs(int(value)) >= _TOO_BIG:
            self.refuse_value(where, f"is an int of more than {MAX_DIGITS} digits, which no reader of JSON accepts. Pass hex(value).")
        self.same(value, int(value), where)

    def number(self, value: float, where: str) -> None:
        """Reject NaN and infinity."""
        if not math.isfinite(value):
            self.refuse_value(where, f"is the float {float(value)}, which JSON does not have. Pass None or a text in its place.")
        self.same(value, float(value), where)

    def same(self, value: object, stored: object, where: str) -> None:
        """Reject an object of a subclass that is not equal to its stored form."""
        if type(value) not in _SCALARS and value != stored:
            self.refuse_type(where, value)

    def refuse_type(self, where: str, value: object) -> NoReturn:
        """Raise the error for a value of a type that JSON does not have."""
        if self.subject is _RESULT and where == _RESULT.name and (text := not_run(value)):
            raise self.subject.wrong_type(text)
        raise self.subject.wrong_type(
            f"{self.subject.sentence} {where} is of type {type_name(value)}, which JSON does not have or would change. {fix(value)}"
        )

    def refuse_value(self, where: str, problem: str) -> NoReturn:
        """Raise the error for a value of an accepted type."""
        raise self.subject.wrong_value(f"{self.subject.sentence} {where} {problem}")


def _spelled_out(match: re.Match[str]) -> str:
    """Return a float like 1e+16 with all of its digits and ".0", because PostgreSQL's jsonb would return the short form as an int."""
    text = match.group()
    return text if text[0] == '"' else f"{int(float(text))}.0"


def _is_container(value: object) -> TypeGuard[Mapping[object, object] | Sequence[object]]:
    """Return whether a value is stored as a list or dict of its members."""
    kind = value.__class__ if isinstance(value, LazyObject) else type(value)
    return issubclass(kind, Mapping | Sequence) and not issubclass(kind, _NOT_LISTS)


def _converted(value: object) -> object:
    """Return a mapping or sequence as one that the encoder accepts; other types have been rejected by the search."""
    if _is_container(value):
        return dict(value.items()) if isinstance(value, Mapping) else list(value)
    raise TypeError(f"{type_name(value)} is not a JSON type")


_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"), default=_converted)
_MAKE_ENCODER: Any = getattr(json.encoder, "c_make_encoder", None)
_FAST_ENCODER = _MAKE_ENCODER and _MAKE_ENCODER(None, _converted, json.encoder.encode_basestring_ascii, None, ":", ",", False, False, False)


def _encode(value: object) -> str:
    """Return compact JSON. JSONEncoder would build its C encoder again for every call, which takes longer than to encode."""
    return "".join(_FAST_ENCODER(value, 0)) if _FAST_ENCODER else _ENCODER.encode(value)
