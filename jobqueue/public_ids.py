"""The public id of a job: a UUID that names the job and cannot be guessed.

It is computed from the job's number and a key, and is not stored. A column would need a unique index. Each claim
and each end of a job would add an entry to that index, because neither is a heap-only update. This would cost the
server 14 % of its time.

A UUID of version 8 has 122 free bits. 58 of them are a code of the number, by which wrong ids are detected. The
other 64 are the number, enciphered with that code.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import re
from typing import Any, Final
from uuid import UUID

from jobqueue import conf
from jobqueue.core.texts import safe_repr
from jobqueue.exceptions import InvalidOption

CODE_BITS: Final = 58
_WORD: Final = 2**64 - 1
_TEXT = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def public_id(job_id: int) -> str:
    """Return the public id of the job with a number; "" for any other type, which SQLite can store."""
    if not isinstance(job_id, int):
        return ""
    coder, cipher = _hashes(conf.public_id_keys()[0])
    code = _hashed(job_id & _WORD, coder) >> 64 - CODE_BITS
    free = (job_id & _WORD ^ _hashed(code, cipher)) << CODE_BITS | code
    text = f"{free >> 74 << 80 | 8 << 76 | (free >> 62 & 0xFFF) << 64 | 2 << 62 | free & 2**62 - 1:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def job_id_of(text: str) -> int | None:
    """Return the number of the job that has a public id; None if the text is not a public id."""
    if not _TEXT.fullmatch(text):
        return None
    bits = int(text.replace("-", ""), 16)
    free = bits >> 80 << 74 | (bits >> 64 & 0xFFF) << 62 | bits & 2**62 - 1
    code = free & 2**CODE_BITS - 1
    for key in conf.public_id_keys():
        coder, cipher = _hashes(key)
        number = free >> CODE_BITS ^ _hashed(code, cipher)
        if hmac.compare_digest((_hashed(number, coder) >> 64 - CODE_BITS).to_bytes(8), code.to_bytes(8)):
            return number - 2**64 if number >> 63 else number
    return None


def number_of(job: Any) -> int:
    """Return the number of a job, given as a job, its number or public id, or the result of its enqueue."""
    given = job if isinstance(job, int | str | UUID) else getattr(job, "pk", None) or getattr(job, "id", None)
    if isinstance(given, str | UUID):
        text = str(given)
        given = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else job_id_of(text)
    if isinstance(given, bool) or not isinstance(given, int):  # the database would read True as 1, and 1.5, too
        raise not_a_job(job)
    return given


def not_a_job(job: object) -> InvalidOption:
    """Return the error for a value that names no job."""
    return InvalidOption(f"job is {safe_repr(job)}; it must be a job, its number or public id, or the result of its enqueue.")


@functools.lru_cache(16)
def _hashes(key: str | bytes) -> tuple[hashlib.blake2b, hashlib.blake2b]:
    """Return the hash of the code and that of the cipher, each with its key. A copy of them is quicker than a new one."""
    digest = hashlib.blake2b(key if isinstance(key, bytes) else key.encode(errors="surrogatepass"), person=b"jobqueue.ids").digest()
    return hashlib.blake2b(digest_size=8, key=digest[:32]), hashlib.blake2b(digest_size=8, key=digest[32:])


def _hashed(number: int, start: hashlib.blake2b) -> int:
    current = start.copy()
    current.update(number.to_bytes(8))
    return int.from_bytes(current.digest())
