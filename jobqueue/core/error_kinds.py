"""The kind of an error: the task, the class of the exception, and the message without the values that differ from job to job."""

from __future__ import annotations

import hashlib
import re

MAX_READ = 2000

# In this order: a quoted text may contain an id, and an id may contain numbers.
_VALUES = (
    (re.compile(r"'[^'\n]*'|\"[^\"\n]*\"|`[^`\n]*`"), "'…'"),
    (re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", re.IGNORECASE), "UUID"),
    (re.compile(r"\b0x[0-9a-f]+\b|\b(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{8,}\b", re.IGNORECASE), "HEX"),
    (re.compile(r"[0-9]+(?:[.,:][0-9]+)*"), "N"),
)


def normalized(message: str) -> str:
    """Return the first line of a message with numbers, hexadecimal numbers, UUIDs and quoted texts replaced."""
    line = message[:MAX_READ].strip().partition("\n")[0]
    for pattern, instead in _VALUES:
        line = pattern.sub(instead, line)
    return line


def error_key(task: str, exception: str, message: str) -> str:
    """Return the key of a kind of errors, 16 hexadecimal digits. `task` and `exception` are dotted paths, or "" if they are unknown."""
    text = "\n".join((task, exception, normalized(message)))
    return hashlib.blake2b(text.encode(errors="backslashreplace"), digest_size=8).hexdigest()
