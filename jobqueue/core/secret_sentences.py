"""Secrets in sentences: the password is x, PIN 1234, mot de passe : x, machine h login u password x; and helpers that hide a match.

As in `secret_forms`, every repetition is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

MASK: Final = "********"
# Words for "password" in other languages. Names in ASCII letters only are in `masking`, too.
FOREIGN: Final = re.compile(
    r"(?:passwort|kennwort|mots?[ _-]de[ _-]passe|contrase[nñ]a|wachtwoord|senha|lösenord|hasło|пароль|密码|密碼|パスワード|비밀번호)"
)

# The same without quotes: the password is x, PIN 1234, machine h login u password x, mot de passe : x.
_SAID_PLAIN = re.compile(
    rf"""(?<![A-Za-z])(?i:password|passwd|pwd|passphrase|passcode|secret|token|api[ _-]?key|{FOREIGN.pattern})\s{{1,3}}"""
    r"""(?i:is|was|ist|war|est|es|é|is\s{1,3}now)(?:\s{1,3}|:\s{0,3})["']?([^\s"'<>]{3,200})"""
)
_FOREIGN_VALUE = re.compile(
    rf"""(?i:{FOREIGN.pattern})["']?\s{{0,3}}(?:[:=\uff1a\uff1d→⇒➜]|-{{1,2}}>)\s{{0,3}}(["']?)([^\s"',;&<>]+|(?<=["'])[^"'\n]+)"""
)
_NETRC = re.compile(
    r"""(?<!\w)(?:machine|default|login|account)\s{1,10}(?:[^\s"']{1,200}\s{1,10}){1,3}?(?:password|passwd)\s{1,10}([^\s"']{3,200})"""
)
_PIN = re.compile(
    r"""(?<!\w)(?i:pin|otp|totp|passcode|(?:verification|security|one-time|sms)[ -]code)\s{1,3}"""
    r"""(?:(?i:is|was|code|number|no\.?)\s{1,3}){0,2}(\d{4,8})(?![\w.,:%-]*\d)"""
)
_SAID_HINT = re.compile(
    r"(?:passw?[a-z]{0,6}|pwd|secret|token|key|kennwort|contrase.a|wachtwoord|senha|ord|hasło|пароль)\s{1,3}(?:is|was|ist|war|est|es|é)[\s:]"
)
_NETRC_WORDS: Final = ("machine", "login", "default", "account")
_CODES: Final = ("pin ", "otp ", "code ", "pin\t", "pin\n")
# Words that can follow "the token is" and are no secret, such as "missing". Most words with one of the endings
# are no secret either.
_HARMLESS: Final = frozenset(
    (
        *("a", "abgelaufen", "about", "above", "already", "also", "always", "an", "another", "as", "at", "authentication", "available"),
        *("bad", "because", "being", "below", "blank", "by", "correct", "currently", "different", "empty", "equal", "expiré", "falsch"),
        *("false", "field", "fine", "for", "from", "gone", "good", "here", "in", "incomplete", "incorrect", "incorrecta", "incorrecte"),
        *("invalid", "invalide", "its", "known", "leer", "less", "long", "longer", "lost", "malformed", "mandatory", "missing", "more"),
        *("never", "new", "nicht", "no", "non", "none", "not", "now", "null", "obligatorio", "of", "ok", "okay", "old", "on", "only"),
        *("optional", "out", "outdated", "pas", "public", "safe", "same", "short", "shorter", "shown", "similar", "so", "stale", "still"),
        *("that", "the", "there", "this", "to", "too", "true", "under", "ungültig", "unique", "unknown", "unsafe", "unset", "unusual"),
        *("up", "used", "valid", "vide", "wrong"),
    )
)
_HARMLESS_ENDS: Final = ("ed", "ing", "ly", "able", "ible", "less")


def hide_said(text: str) -> str:
    """Hide the word that follows a word such as "password" without a sign or quotes between them, unless it is a harmless word."""

    def unless_harmless(pattern: re.Pattern[str], text: str) -> str:
        return pattern.sub(lambda match: match[0] if _is_harmless(match[1]) else replaced(match, 1), text)

    lower = text.lower()
    if _SAID_HINT.search(lower):
        text = unless_harmless(_SAID_PLAIN, text)
    if "passw" in text and has_any(text, _NETRC_WORDS):
        text = unless_harmless(_NETRC, text)
    if has_any(lower, _CODES):
        text = inner(_PIN, text, 1)
    return inner(_FOREIGN_VALUE, text, 2) if FOREIGN.search(lower) else text


def _is_harmless(value: str) -> bool:
    word = value.rstrip(".,;:!?)]}").lower()
    return MASK in value or word in _HARMLESS or (word.isalpha() and word.endswith(_HARMLESS_ENDS)) or word[:1] in "([{%$"


def has_any(text: str, parts: Iterable[str]) -> bool:
    """Return whether a text holds one of the parts."""
    for part in parts:  # noqa: SIM110 - twice as fast as `any` with a generator, and called several times for each failed run
        if part in text:
            return True
    return False


def replaced(match: re.Match[str], group: int) -> str:
    """Return the text of a match with one of its groups hidden."""
    begin, end = match.start(group) - match.start(), match.end(group) - match.start()
    return f"{match[0][:begin]}{MASK}{match[0][end:]}"


def inner(pattern: re.Pattern[str], text: str, group: int) -> str:
    """Return a text in which one group of each match is hidden."""
    return pattern.sub(lambda match: replaced(match, group), text)
