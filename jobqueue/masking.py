"""Hide secrets wherever a person reads arguments, results or errors.

What counts as secret is decided by names: of arguments, of dictionary keys, and of what stands before a ``=`` or ``:`` in a text.
Credentials in URLs are hidden as well. The database row alone keeps the values.
"""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence

MASK = "********"
MAX_DEPTH = 100
TOO_DEEP = "…"

# Anywhere in a name, since nobody has a harmless word with one of these in it.
_ANYWHERE = re.compile(r"password|passwd|passphrase|token|secret|authorization|credential")
# As a word of its own, alone or after one of the usual ones: "monkey" and "keyboard" are harmless.
_BEFORE_KEY = "api|access|auth|client|encryption|license|master|private|service|signing|ssh"
_AS_WORD = re.compile(rf"(?:^|_)(?:(?:{_BEFORE_KEY})?keys?|pass|pwd|auth)(?:_|$)")
_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NO_LETTER = re.compile(r"[^a-z]+")

# What is repeated in these cannot cross the next "://" or the next name, so that the time grows with the length of the text only.
_URL_PASSWORD = re.compile(r"""(://[^\s/?#:@"'<>]*:)[^\s/?#"<>]+@""")
_URL_TOKEN = re.compile(r"""(https?://)[^\s/?#:@"'<>]+@""", re.IGNORECASE)
_NAME = re.compile(r"""(?<![\w.-])([A-Za-z_][\w.-]{0,80})\\?["']?\s{0,3}[:=]\s{0,3}""")
_VALUE = re.compile(
    r"""[bru]{0,2} (?: "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*' )     # quoted
        | \\" .*? \\" | \\' .*? \\'                                     # quoted within a quoted text
        | [bru]{0,2} \\?["'] [^\n]*                                       # quoted, its end cut off
        | \[[^\]\n]*\]? | \{[^}\n]*\}? | \([^)\n]*\)?                     # a collection
        | (?:bearer|basic|token)\s+ [^\s,;"']+
        | [^\s,;&]* [^\s,;&)}\]"']""",
    re.IGNORECASE | re.VERBOSE,
)
_QUOTE = re.compile(r"""\\?["']""")


def is_secret_name(name: str) -> bool:
    """Return whether a name looks as if its value were a secret, as in ``api_key``, ``authToken`` or ``DB_PASSWORD``."""
    plain = _NO_LETTER.sub("_", _WORD_START.sub("_", name).lower())
    return bool(_ANYWHERE.search(plain.replace("_", "")) or _AS_WORD.search(plain))


def mask(value: object) -> object:
    """Return a deep copy in which the values of secret-looking keys and the secrets inside texts are hidden."""
    return _mask(value, MAX_DEPTH)


def mask_call(
    func: Callable[..., object] | None, args: Sequence[object], kwargs: Mapping[str, object], *, takes_context: bool = False
) -> tuple[list[object], dict[str, object]]:
    """Return the arguments of a call with secrets hidden, positional ones by the names of the function's parameters.

    Without a function, for a task that is gone, positional arguments are judged by what they hold only. With ``takes_context`` the
    first parameter is the context, which is not among the arguments.
    """
    names = _positional_names(func, len(args) + takes_context)[takes_context:]
    masked_args = [MASK if index < len(names) and is_secret_name(names[index]) else mask(value) for index, value in enumerate(args)]
    return masked_args, {name: MASK if is_secret_name(str(name)) else mask(value) for name, value in kwargs.items()}


def mask_text(text: str) -> str:
    """Return a text with URL credentials and the values in ``password=...`` or ``"token": "..."`` hidden."""
    if ":" not in text and "=" not in text:
        return text
    text = _URL_TOKEN.sub(rf"\g<1>{MASK}@", _URL_PASSWORD.sub(rf"\g<1>{MASK}@", text))
    parts, end = [], 0
    while name := _NAME.search(text, end):
        parts.append(text[end : name.end()])
        end = name.end()
        # "KeyError: ..." introduces a message, in which the search goes on.
        if is_secret_name(name[1]) and not name[1].endswith(("Error", "Exception")) and (value := _VALUE.match(text, end)):
            quote = _QUOTE.match(value[0])
            parts.append(f"{quote[0]}{MASK}{quote[0]}" if quote else MASK)
            end = value.end()
    return "".join(parts) + text[end:]


def _mask(value: object, depth: int) -> object:
    """Return the masked copy of a value, at most ``depth`` levels deep."""
    if isinstance(value, str):
        return mask_text(value)
    if not isinstance(value, Mapping | list | tuple):
        return value
    if depth <= 0:
        return TOO_DEEP
    if isinstance(value, Mapping):
        return {key: MASK if isinstance(key, str) and is_secret_name(key) else _mask(item, depth - 1) for key, item in value.items()}
    items = [_mask(item, depth - 1) for item in value]
    return items if isinstance(value, list) else tuple(items)


def _positional_names(func: Callable[..., object] | None, count: int) -> list[str]:
    """Return the names that ``count`` positional arguments have in a function, as far as they are known."""
    if func is None:
        return []
    try:
        parameters = inspect.signature(func).parameters.values()
    except (TypeError, ValueError):
        return []
    names = [parameter.name for parameter in parameters if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)]
    rest = next((parameter.name for parameter in parameters if parameter.kind is parameter.VAR_POSITIONAL), None)
    return names if rest is None else names + [rest] * (count - len(names))
