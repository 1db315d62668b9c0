"""Hide secrets wherever jobqueue shows, sends or logs arguments, results, errors or messages.

A value is secret because of its name. Such names are those of arguments, dictionary keys, and names before a
value in a text (`secret_forms`). The setting ``SECRET_NAMES`` adds names for all tasks, and the option ``secret``
of a task adds names for its jobs. If a value in a job's arguments or metadata has such a name, it is hidden in
all texts of that job, whatever precedes it (`Mask`).
"""

from __future__ import annotations

import functools
import html
import inspect
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from urllib.parse import quote, quote_plus

from jobqueue.core import secret_forms, texts
from jobqueue.core.secret_sentences import FOREIGN, MASK

__all__ = ["MASK", "PLAIN", "Mask", "is_secret_name", "mask", "mask_call", "mask_text", "names_from"]

MAX_DEPTH = 100
TOO_DEEP = "…"
SHORTEST_VALUE = 4
SHORTEST_LINE = 16
MAX_KEPT_NAME = 100
MAX_KEPT_TEXT = 2000
MAX_VALUES = 10_000  # if a job has more secret values, none of its texts is shown
NUMBERS = range(10**5, 10**40)  # that are hidden in texts: a shorter number is a part of many harmless texts
COMMON = frozenset({"true", "false", "none", "null"})

# Searched for anywhere in a name, because no harmless word contains one of these.
_ANYWHERE = re.compile(
    r"password|passwd|passphrase|passcode|token|secret|authorization|credential|jwt|cookies?(?!cutter)|bearer"
    r"|passwort|kennwort|mots?depasse|contrasen?a|wachtwoord"
)
# These must be a separate word, alone or after one of the usual prefixes, because "monkey", "keyboard",
# "spinning" and "design" are harmless.
_BEFORE_KEY = "api|access|auth|client|encryption|license|master|private|service|signing|ssh"
_WORDS = "pass|pwd|pw|auth|otp|totp|pin|senha|dsn|cvv|cvc|iban|sig|signature|sessid|sessionid|session_id|phpsessid|jsessionid|sid"
_AS_WORD = re.compile(rf"(?:^|_)(?:(?:{_BEFORE_KEY})?keys?|{_WORDS})(?:_|$)")
_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NO_LETTER = re.compile(r"[^a-z]+")
_URL_SECRET = re.compile(r"""://(?:([^\s/?#:@"'<>]+):(?:x|x-oauth-basic)?@|[^\s/?#:@"'<>]*:([^\s/?#"'<>@]+)@)""")  # as in `secret_forms`

_more_names: Callable[[], Sequence[str]] = tuple


def names_from(read: Callable[[], Sequence[str]]) -> None:
    """Register the function that returns the names of `SECRET_NAMES`; it is in a higher layer."""
    global _more_names  # noqa: PLW0603 - set once, while the settings' module is imported
    _more_names = read


def is_secret_name(name: str, fields: Iterable[str] = ()) -> bool:
    """Return whether a name is that of a secret: ``api_key``, ``authToken``, ``DB_PASSWORD``; `fields` are more names."""
    more = (*_more_names(), *fields)
    return _is_secret(name, more) if len(name) <= MAX_KEPT_NAME else _says_secret(name, more)


def _says_secret(name: str, more: tuple[str, ...]) -> bool:
    plain = _plain(name)
    if _ANYWHERE.search(plain.replace("_", "")) or _AS_WORD.search(plain) or (not name.isascii() and FOREIGN.search(name.lower())):
        return True
    pattern = _pattern(more)
    return pattern is not None and pattern.search(plain) is not None


_is_secret = functools.lru_cache(maxsize=1000)(_says_secret)  # called for the names of the arguments of each failed run


def _plain(name: str) -> str:
    return _NO_LETTER.sub("_", _WORD_START.sub("_", name).lower())


@functools.lru_cache(maxsize=1000)
def _pattern(names: tuple[str, ...]) -> re.Pattern[str] | None:
    plain = sorted({stripped for name in names if (stripped := _plain(name).strip("_"))})
    return re.compile(rf"(?:^|_)(?:{'|'.join(plain)})(?:_|$)") if plain else None


class Mask:
    """The mask of a job. It hides secrets by their names, including those of the task, and by the known secret values of the job."""

    __slots__ = ("_fields", "_hidden", "_last", "_values", "overlap")

    def __init__(self, fields: Sequence[str] = (), values: Iterable[str] = ()) -> None:
        """Store the task's names and the forms of the job's secret values."""
        self._fields = tuple(fields)
        forms = {form for value in values for form in _forms(value)}
        self._values = sorted(forms, key=len, reverse=True)  # a value that contains another one is hidden as a whole
        self._hidden = len(self._values) > MAX_VALUES
        self._last = ("", self._fields, "")
        self.overlap = max(len(self._values[0]) if self._values else 0, 4096)
        """The number of characters to read beyond a cut, so that a secret at the cut is masked as a whole."""

    def __repr__(self) -> str:
        """Return a text without the values."""
        return "<Mask>"

    @classmethod
    def of_job(
        cls,
        func: Callable[..., object] | None,
        args: object,
        kwargs: object,
        metadata: object = None,
        *,
        takes_context: bool = False,
        fields: Sequence[str] = (),
    ) -> Mask:
        """Return the mask of a job. The parameters of its function are the names of positional arguments."""
        given = args if isinstance(args, list | tuple) else []
        names = _positional_names(func, len(given) + takes_context)[takes_context:]
        holding_secrets: list[object] = []
        for index, value in enumerate(given):
            name = names[index] if index < len(names) else None
            if not _is_harmless(value, name, fields):  # quick: most are harmless, and this runs for each failed run
                holding_secrets.append(value if name is None else {name: value})
        more = [mapping for mapping in (kwargs, metadata) if mapping]
        return cls(fields, _secrets([*holding_secrets, *more], fields) if holding_secrets or more else ())

    def __call__(self, text: str) -> str:
        """Return a text with its secrets hidden."""
        if not isinstance(text, str):  # bytes, which SQLite may hold in a text column
            text = str(text)
        names, last = self.names, self._last
        if text == last[0] and names == last[1]:  # the message of an error is shown by itself and in its traceback
            return last[2]
        known = self.known(text)
        hidden = known if self._hidden else secret_forms.hide(known, self.is_secret, every_name=bool(names))
        if len(text) < MAX_KEPT_TEXT:
            self._last = (text, names, hidden)
        return hidden

    @property
    def names(self) -> tuple[str, ...]:
        """The names of secrets that the project and the task add."""
        more = _more_names()
        return (*more, *self._fields) if self._fields else (*more,)

    def known(self, text: str) -> str:
        """Return a text in which only the known secret values of the job are hidden."""
        if self._hidden:
            return MASK
        for value in self._values:
            if value in text:
                text = text.replace(value, MASK)
        return text

    def cut(self, text: str, limit_bytes: int) -> str:
        """Return at most the first bytes of a text. Secrets are hidden before the cut, so that no part of one is shown."""
        return texts.shorten(str(text), limit_bytes, self)

    def is_secret(self, name: str) -> bool:
        """Return whether a name is that of a secret."""
        return is_secret_name(name, self._fields)

    def value(self, value: object) -> object:
        """Return a deep copy in which the values of secret names and the secrets inside texts are hidden."""
        return self._value(value, MAX_DEPTH)

    def call(
        self,
        func: Callable[..., object] | None,
        args: Sequence[object],
        kwargs: Mapping[str, object],
        *,
        takes_context: bool = False,
    ) -> tuple[list[object], dict[str, object]]:
        """Return the arguments of a call with secrets hidden. Positional ones have the names of the function's parameters.

        Without a function, as for a task that no longer exists, positional arguments are judged by their contents
        only. With `takes_context`, the first parameter is the context, which is not among the arguments.
        """
        names = _positional_names(func, len(args) + takes_context)[takes_context:]
        masked = [MASK if index < len(names) and self.is_secret(names[index]) else self.value(value) for index, value in enumerate(args)]
        return masked, {name: MASK if self.is_secret(str(name)) else self.value(value) for name, value in kwargs.items()}

    def _value(self, value: object, depth: int) -> object:
        """Return the masked copy of a value, at most `depth` levels deep."""
        if isinstance(value, str):
            return self(value)
        if not isinstance(value, Mapping | list | tuple):
            return value
        if depth <= 0:
            return TOO_DEEP
        if isinstance(value, Mapping):
            hidden = _value_keys(value, self.is_secret)
            return {key: MASK if key in hidden else self._value(item, depth - 1) for key, item in value.items()}
        after = _after_names(value, self.is_secret)
        items = [MASK if index in after else self._value(item, depth - 1) for index, item in enumerate(value)]
        return items if isinstance(value, list) else tuple(items)


PLAIN = Mask()


def mask(value: object) -> object:
    """Return a deep copy in which the values of secret names and the secrets inside texts are hidden."""
    return PLAIN.value(value)


def mask_call(
    func: Callable[..., object] | None,
    args: Sequence[object],
    kwargs: Mapping[str, object],
    *,
    takes_context: bool = False,
    fields: Sequence[str] = (),
) -> tuple[list[object], dict[str, object]]:
    """Return the arguments of a call with secrets hidden; see `Mask.call`."""
    return Mask(fields).call(func, args, kwargs, takes_context=takes_context)


def mask_text(text: str) -> str:
    """Return a text with its secrets hidden."""
    return PLAIN(text)


def _value_keys(value: Mapping[object, object], is_secret: Callable[[str], bool]) -> set[object]:
    """Return the keys whose values are secrets, including "value" beside a secret "name", as in lists of headers and variables."""
    secret_keys: set[object] = {key for key in value if isinstance(key, str) and is_secret(key)}
    for name in ("name", "key", "Name", "Key"):
        label = value.get(name)
        if isinstance(label, str) and is_secret(label):
            secret_keys.discard(name)  # "key": "token" is the name of the value
            secret_keys |= {key for key in ("value", "Value") if key in value}
    return secret_keys


def _after_names(value: Sequence[object], is_secret: Callable[[str], bool]) -> set[int]:
    """Return the indexes of secrets in a list: after an option of a command line, or in a pair such as a header."""
    indexes = set()
    for index, item in enumerate(value[:-1]):
        if isinstance(item, str) and len(item) < 100 and isinstance(value[index + 1], str | int | float):
            is_name = item.startswith("-") or len(value) == 2
            if is_name and "=" not in item and ":" not in item and " " not in item and is_secret(item.lstrip("-")):
                indexes.add(index + 1)
    return indexes


def _is_harmless(value: object, name: str | None, fields: Sequence[str]) -> bool:
    """Return whether a quick check finds that an argument holds no secret."""
    if isinstance(value, Mapping | list | tuple) or (isinstance(value, str) and "://" in value):
        return False
    return name is None or not is_secret_name(name, fields)


def _secrets(values: Iterable[object], fields: Sequence[str]) -> Iterator[str]:
    """Yield the texts and whole numbers that have a secret name somewhere in the values, and the passwords in their URLs."""
    is_secret = functools.partial(is_secret_name, fields=fields)
    waiting: list[tuple[object, bool, int]] = [(value, False, MAX_DEPTH) for value in values]
    while waiting:
        value, secret, depth = waiting.pop()
        if isinstance(value, str):
            if secret:
                yield value
            elif "://" in value:
                yield from itertools.chain.from_iterable(_URL_SECRET.findall(value[:100_000]))
        elif secret and isinstance(value, int) and value in NUMBERS:
            yield str(value)
        elif depth and isinstance(value, Mapping):
            hidden = set(value) if secret else _value_keys(value, is_secret)
            waiting.extend((item, key in hidden, depth - 1) for key, item in value.items())
        elif depth and isinstance(value, list | tuple):
            after = set(range(len(value))) if secret else _after_names(value, is_secret)
            waiting.extend((item, index in after, depth - 1) for index, item in enumerate(value))


def _forms(value: str) -> Iterator[str]:
    """Yield the forms in which a secret value can appear in a text: unchanged, escaped, or as separate lines."""
    if len(value) < SHORTEST_VALUE or value.lower() in COMMON or not value.strip(" \t\r\n*"):
        return
    plain = value.encode("utf-8", "replace").decode()
    forms = {value, repr(value)[1:-1], json.dumps(value)[1:-1], quote(plain, safe=""), quote(plain), quote_plus(plain), html.escape(value)}
    forms |= {" ".join(value.split()), *(line.strip() for line in value.splitlines() if len(line.strip()) >= SHORTEST_LINE)}
    yield from (form for form in forms if len(form) >= SHORTEST_VALUE)


def _positional_names(func: Callable[..., object] | None, count: int) -> list[str]:
    """Return the names of `count` positional arguments of a function, as far as they are known."""
    if func is None:
        return []
    try:
        names, variadic = _parameters(func)
    except (TypeError, ValueError):
        return []
    return [*names, *([variadic] * (count - len(names)) if variadic is not None else ())]


@functools.lru_cache(maxsize=1000)
def _parameters(func: Callable[..., object]) -> tuple[tuple[str, ...], str | None]:
    """Return the names of the positional parameters of a function, and the name of the one that takes the rest."""
    parameters = inspect.signature(func).parameters.values()
    names = tuple(param.name for param in parameters if param.kind in (param.POSITIONAL_ONLY, param.POSITIONAL_OR_KEYWORD))
    return names, next((param.name for param in parameters if param.kind is param.VAR_POSITIONAL), None)
