"""The forms of secrets in texts: after a name, in a URL, in a header, on a command line, or by themselves.

Every repetition in these patterns is bounded, or ends at a character that begins the next match, so the time
grows linearly with the length of the text. Most texts contain none of the words that a form needs. Such texts are
not searched for that form.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from jobqueue.core.secret_sentences import MASK, has_any, hide_said, inner, replaced

IsSecret = Callable[[str], bool]

# Parts of the names that `masking.is_secret_name` accepts. A text without any of them has no secret after a name.
NAME_PARTS: Final = (
    *("pass", "pwd", "pw", "secret", "token", "auth", "credential", "key", "jwt", "otp", "pin", "cookie", "sess", "dsn", "cvv", "cvc"),
    *(
        "iban",
        "sig",
        "bearer",
        "kennwort",
        "contrase",
        "wachtwoord",
        "senha",
        "lösenord",
        "hasło",
        "пароль",
        "密码",
        "密碼",
        "パスワード",
        "비밀번호",
    ),
)
# URLs. After "://host:" there is a port, or a password, whose "@" may have been cut off.
_URL_PASSWORD = re.compile(r"""(://[^\s/?#:@"'<>\[]*:)(?!\d{0,5}(?:[\s/?#"'<>,;)\]}\\.…]|$))[^\s/?#"<>…@]+""")
_URL_PASSWORD_AT = re.compile(r"""(://[^\s/?#:@"'<>]*:)[^\s/?#"<>]+@""")
_URL_TOKEN = re.compile(r"""(https?://)[^\s/?#:@"'<>]+@""", re.IGNORECASE)
# The user is the secret if the password is empty, or one of the usual fillers: https://TOKEN:x-oauth-basic@host, https://KEY:@host.
_URL_KEY = re.compile(r"""(https?://)[^\s/?#:@"'<>]+(?=:(?:x|x-oauth-basic)?@)""", re.IGNORECASE)
# Paths with a key, at Slack, Discord, Telegram, Teams and Zapier. Errors of HTTP libraries show paths without their hosts.
_PATH_KEY = re.compile(
    r"""(/services/T\w{1,20}/B\w{1,20}/|/api/(?:v\d{1,2}/)?webhooks/\d{2,25}/|/bot\d{3,15}:|/webhookb2/|/hooks/catch/\d{2,15}/)[^\s/?#"'<>),]{2,}"""
)
_PATHS: Final = ("/services/T", "webhook", "/bot", "/hooks/catch/")
_DRIVER_PASSWORD = re.compile(r"""(?<![\w.%+-])([\w.%+-]{1,80}:)[^\s@"']{1,200}(?=@(?:tcp|udp|unix)\()""")

_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)", re.DOTALL
)
# Tokens that are recognized by their beginnings.
_TOKEN_STARTS: Final = (
    *("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xoxa-", "xoxb-", "xoxp-", "xoxr-", "xoxs-", "sk_live_", "sk_test_"),
    *("rk_live_", "pk_live_", "whsec_", "npm_", "pypi-", "shpat_", "hvs.", "dop_v1_", "sk-ant-", "sk-proj-", "AIza", "AKIA", "ASIA", "SG."),
    "eyJ",
)
_TOKEN = re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(map(re.escape, _TOKEN_STARTS))})[A-Za-z0-9_.+/=-]{{8,}}")
_BEARER = re.compile(r"(?i:\b(bearer\s{1,3}))(?!(?:tokens?|auth\w*|scheme|header|realm)\b)[A-Za-z0-9._~+/=-]{4,}")
_BASIC = re.compile(r"(?i:\b(basic\s{1,3}))(?=[A-Za-z+/]*[A-Z0-9=])[A-Za-z0-9+/]{6,}={0,2}")

# A dash, then a name, then white space or a list's comma, then the value: --password x, ['--password', 'x'].
_OPTION = re.compile(r"""(?<!\w)-([A-Za-z][\w-]{0,80})\s{1,3}(?!-)("[^"\n]*"?|'[^'\n]*'?|[^\s"'\\,\]]+)""")
_OPTION_IN_LIST = re.compile(r"""-([A-Za-z][\w-]{0,80})\\{0,7}["']\s{0,3},\s{0,3}[bu]?(\\{0,7}["'])((?:(?!\2)[^\n])*)""")
_USER_OPTION = re.compile(r"""-(?:u|-user|-proxy-user)(?:[\s=]{1,3}|["']\s{0,3},\s{0,3}["'])[^\s:"',]{1,80}:([^\s"']+)""")
_PASS_OPTION = re.compile(r"""sshpass(?:\s{1,3}|["'],\s{0,3}["'])-p(?:\s{0,3}|["'],\s{0,3}["'])([^\s"']+)""")

# Programs that take a password after a short option: attached (mysql -psecret), or as the next word (redis-cli -a
# secret).
_GAP = r"""(?=[\s"'])[^\n;|]{0,300}?[\s"']"""
_PORTS = r"(?!\d{1,5}:\d{1,5}(?!\d))"  # docker run mysql -p 3306:3306
_ATTACHED = re.compile(rf"""(?<![\w.])(?:(?:mysql|mariadb)[\w-]{{0,20}}|7za?|rar){_GAP}-p{_PORTS}([^\s"']+)""")
_NEXT_WORD = re.compile(
    rf"""(?<![\w.])(?:redis-cli{_GAP}-a|mongo\w{{0,10}}{_GAP}-p|(?:sqlcmd|bcp|zip|unzip){_GAP}-P|ldap\w{{1,10}}{_GAP}-w)"""
    rf"""(?:\s{{1,3}}|["'],\s{{0,3}}["'])(?!-){_PORTS}([^\s"']+)"""
)
_PROGRAMS: Final = ("mysql", "mariadb", "7z", "rar ", "redis-cli", "mongo", "sqlcmd", "bcp", "ldap", "zip")

# A name, "=", ":", "=>" or an arrow, a value.
_NAME = re.compile(
    r"""(?<!\w)([A-Za-z_][\w.-]{0,80})\\{0,7}["']?\]?\s{0,3}(?:=>|:=|={1,3}|:|[→⇒➜\uff1a\uff1d]|(?<=\s)-{1,2}>(?=\s))\s{0,3}"""
)
_SIGNS: Final = (":", "=", "->", "→", "⇒", "➜", "\uff1a", "\uff1d")
# The same in a URL or a form that was percent-encoded, also twice: access_token%3Dx%26, %22password%22%3A%22x%22.
_ENCODED = re.compile(
    r"""(?:(?<!\w)|(?<=%26)|(?<=%3[fF])|(?<=%2[02cC])|(?<=%7[bB])|(?<=%252[026cC])|(?<=%253[fF])|(?<=%257[bB]))([A-Za-z_][\w.-]{0,80})"""
    r"""(?:%(?:25)?2[027])?%(?:25)?3[aAdD](?:%(?:25)?2[027]){0,2}((?:(?!%(?:25)?(?:2[267cC]|7[dD]))[^\s&"'<>])+)"""
)
_ENCODED_URL = re.compile(
    r"""(?i:(?:%(?:25)?3a%(?:25)?2f%(?:25)?2f)[^\s%/]{0,100}%(?:25)?3a)((?:(?!%(?:25)?40)[^\s&"'<>]){1,200})(?=%(?:25)?40)"""
)
_VALUE = re.compile(
    r"""[bru]{0,2} (?: "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*' )     # quoted
        | (?P<quote>\\{1,7}["']) .*? (?P=quote)                           # quoted within a quoted text
        | [bru]{0,2} \\{0,7}["'] [^\n]*                                   # quoted, its end cut off
        | \[[^\]\n]*\]? | \{[^}\n]*\}? | \([^)\n]*\)?                     # a collection
        | (?:bearer|basic|token|negotiate)\s+ [^\s,;"']+
        | [^\s,;&<]* [^\s,;&)}\]"'<]""",
    re.IGNORECASE | re.VERBOSE,
)
_QUOTE = re.compile(r"""\\{0,7}["']""")
_REST_OF_LINE = re.compile(r"[^\n]+")
_REST_OF_QUOTED: Final = {'"': re.compile(r'[^\n"]+'), "'": re.compile(r"[^\n']+")}
_IBAN = re.compile(r"[A-Z]{2}\d{2}(?:[ ]?[A-Za-z0-9]{1,4}){2,8}")
_HEADERS: Final = ("cookie", "authorization")
_SCHEME = re.compile(r"(?:bearer|basic|token|negotiate)\s", re.IGNORECASE)

# Lines of source code in a Python traceback. After a name there is code, in which only the literals can be secrets.
_SOURCE = re.compile(
    r"""^([ ]{0,40})File "[^"\n]{0,1000}(?:\.pyw?|>)", line \d{1,9}(?:, in [^\n]*)?\n((?:\1[ ]{2}[^\n]*(?:\n|\Z))+)""", re.MULTILINE
)
_CODE = re.compile(r"""[A-Za-z_"']""")  # the beginning of an expression that is shown without its literals; any other is hidden as a whole
_CODE_PART = re.compile(
    r"""(?P<key> (?<=[\w\])]\[) (?: "[^"\n]*" | '[^'\n]*' | -?\d+ ) (?=\]) )     # of a subscript
        | (?P<literal> [bruft]{0,2} (?P<mark>["']) (?:(?!(?P=mark))[^\\\n]|\\.)* (?:(?P=mark)|(?=\n)|\Z) | \d[\w.]* )
        | (?P<open> [(\[{] ) | (?P<close> [)\]}] ) | (?P<end> [,;\n] )
        | [^\W\d]\w* | [^\w"'()\[\]{},;\n]+ | . """,
    re.IGNORECASE | re.VERBOSE,
)

# Pairs without a sign between them: ('Authorization', 'x'), "name": "password", "value": "x", <token>x</token>, token 'x'.
_PAIR = re.compile(r"""[(\[]\s{0,3}[bu]?["']([\w.-]{1,80})["']\s{0,3},\s{0,3}[bu]?(["'])([^"'\n]*)\2\s{0,3}[)\]]""")
_NAMED_VALUE = re.compile(
    r"""["'](?:name|key)["']\s{0,3}:\s{0,3}["']([\w.-]{1,80})["']\s{0,3},\s{0,3}["']value["']\s{0,3}:\s{0,3}(["'])([^"'\n]*)""",
    re.IGNORECASE,
)
_ATTRIBUTES = re.compile(r"""(?<!\w)(?:name|key)=(["'])([\w.:-]{1,80})\1\s{1,3}value=(["'])([^"'\n]*)""", re.IGNORECASE)
_ELEMENT = re.compile(r"<([A-Za-z][\w:.-]{0,80})(?:\s[^<>]{0,200})?>([^<]+)")
_SAID = re.compile(
    r"""\b(?i:password|passwd|passphrase|passcode|secret|token|api[ _-]?key|cookie)\s{1,3}(?:(?:is|was)\s{1,3})?(["'])([^"'\n]{4,})\1"""
)

# PostgreSQL's messages about a row that it refuses.
_ROW = re.compile(r"(Failing row contains |Key \([^)\n]{0,300}\)=|JSON data, line \d{1,9}: |portal parameter \$\d{1,5} = )([^\n]+)")


def hide(text: str, is_secret: IsSecret, *, every_name: bool = False) -> str:
    """Return a text with its secrets hidden; with `every_name`, `is_secret` accepts names that have none of `NAME_PARTS`."""
    lower = text.lower()
    text = _hide_urls(text)
    if "-----begin" in lower:
        text = _PRIVATE_KEY.sub(MASK, text)
    if has_any(text, _TOKEN_STARTS):
        text = _TOKEN.sub(MASK, text)
    if "bearer" in lower:
        text = _BEARER.sub(rf"\g<1>{MASK}", text)
    if "basic" in lower:
        text = _BASIC.sub(rf"\g<1>{MASK}", text)
    if "row contains" in lower or "key (" in lower or "json data" in lower or "portal param" in lower:
        text = _ROW.sub(rf"\g<1>{MASK}", text)
    if "-u" in text or "sshpass" in text or "-proxy-u" in text:
        text = inner(_PASS_OPTION, inner(_USER_OPTION, text, 1), 1)
    if "-" in text and has_any(text, _PROGRAMS):
        text = inner(_NEXT_WORD, inner(_ATTACHED, text, 1), 1)
    if every_name or has_any(lower, NAME_PARTS):
        text = _hide_named(text, is_secret)
    return text


def _hide_urls(text: str) -> str:
    if has_any(text, _PATHS):
        text = _PATH_KEY.sub(rf"\g<1>{MASK}", text)
    if "://" in text:
        text = _URL_KEY.sub(rf"\g<1>{MASK}", text)
        text = _URL_PASSWORD_AT.sub(rf"\g<1>{MASK}@", text)
        text = _URL_PASSWORD.sub(rf"\g<1>{MASK}", text)
        text = _URL_TOKEN.sub(rf"\g<1>{MASK}@", text)
    if "%2" in text:
        text = inner(_ENCODED_URL, text, 1)
    if "@tcp(" in text or "@udp(" in text or "@unix(" in text:
        text = _DRIVER_PASSWORD.sub(rf"\g<1>{MASK}", text)
    return text


def _hide_named(text: str, is_secret: IsSecret) -> str:
    def named(pattern: re.Pattern[str], name: int, value: int, text: str) -> str:
        return pattern.sub(lambda match: replaced(match, value) if is_secret(match[name]) else match[0], text)

    if "-" in text:
        text = named(_OPTION_IN_LIST, 1, 3, text)
        text = named(_OPTION, 1, 2, text)
    if "(" in text or "[" in text:
        text = named(_PAIR, 1, 3, text)
    if "value" in text:
        text = named(_ATTRIBUTES, 2, 4, named(_NAMED_VALUE, 1, 3, text))
    if "</" in text:
        text = named(_ELEMENT, 1, 2, text)
    if '"' in text or "'" in text:
        text = inner(_SAID, text, 2)
    if "%3" in text or "%253" in text:
        text = named(_ENCODED, 1, 2, text)
    text = hide_said(text)
    return _hide_after_names(text, is_secret) if has_any(text, _SIGNS) else text


def _hide_after_names(text: str, is_secret: IsSecret) -> str:
    parts, end = [], 0
    sources = [match.span(2) for match in _SOURCE.finditer(text)] if 'File "' in text else []
    sources.reverse()
    literals = (part for span in sources[::-1] for part in _CODE_PART.finditer(text, *span) if part["literal"])
    literal: re.Match[str] | None = None
    while name := _NAME.search(text, end):
        parts.append(text[end : name.end()])
        end = name.end()
        # "KeyError: ..." introduces a message, in which the search continues.
        if not is_secret(name[1]) or name[1].endswith(("Error", "Exception")):
            continue
        while sources and sources[-1][1] <= name.start():
            sources.pop()
        is_source = bool(sources) and sources[-1][0] <= name.start()
        if is_source and (literal is None or literal.end() <= name.end()):
            literal = next((part for part in literals if part.end() > name.end()), None)
        limit = _end_of_literal(literal, name) if is_source else len(text)
        if is_source and not limit and ("\n" in name[0] or _CODE.match(text, end)):
            code, end = _without_literals(text, end)
            parts.append(code)
        elif (value := _value(name, text, end, limit or len(text))) is not None:
            quote = _QUOTE.match(value[0])
            parts.append(f"{quote[0]}{MASK}{quote[0]}" if quote else MASK)
            end = value.end()
    return "".join(parts) + text[end:]


def _end_of_literal(literal: re.Match[str] | None, name: re.Match[str]) -> int:
    """Return where the text of a literal ends if it contains the name; 0 if it does not."""
    if literal is None or literal.start() > name.start():
        return 0
    return literal.end() - bool(literal["mark"] and literal[0].endswith(literal["mark"]))


def _without_literals(text: str, at: int) -> tuple[str, int]:
    """Return the Python expression that begins at a position with its literals hidden, and where it ends."""
    if text[at - 1 : at].isspace() and "\n" in text[max(at - 4, 0) : at]:  # the line has ended: "if token:"
        return "", at
    parts, depth = [], 0
    while part := _CODE_PART.match(text, at):
        depth += bool(part["open"]) - bool(part["close"])
        if depth < 0 or part[0] == "\n" or (part["end"] and not depth):
            break
        mark = part["mark"] or ""
        parts.append(f"{mark}{MASK}{mark}" if part["literal"] else part[0])
        at = part.end()
    return "".join(parts), at


def _value(name: re.Match[str], text: str, at: int, limit: int) -> re.Match[str] | None:
    """Return the value that begins at a position and ends before the limit, as far as it belongs to the name."""
    called = name[1].lower()
    if _QUOTE.match(text, at) is None:
        if called.endswith(_HEADERS) and ":" in text[name.end(1) : at] and not _SCHEME.match(text, at):
            before = text[name.start() - 1 : name.start()]  # the quote around the whole header
            return _REST_OF_QUOTED.get(before, _REST_OF_LINE).match(text, at, limit)
        if called.endswith("iban") and (match := _IBAN.match(text, at, limit)):
            return match
    return _VALUE.match(text, at, limit)
