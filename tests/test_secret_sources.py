"""Lines of source code in tracebacks: their literals are hidden, and the code stays readable."""

from __future__ import annotations

import pytest

from jobqueue.core.masking import mask_text
from tests.test_secret_forms import S


def in_source(line: str, file: str = "/srv/shop/tasks.py", indent: str = "") -> str:
    """Return a traceback with a line of source code."""
    rows = ["Traceback (most recent call last):", f'  File "{file}", line 3, in run', f"    {line}", "    ^^^^^^", "ValueError: no"]
    return "\n".join(f"{indent}{row}" for row in rows)


READABLE = [
    'sorted(x, key=lambda row: row["name"])',
    "max(keys, key=len)",
    "connect(password=password, api_key=self.keys[0])",
    'token = os.environ["DB_TOKEN"]',
    "headers = {'Authorization': make_header(user)}",
    "password: str | None = None",
    "if not token:",
    'url = "password=" + quote(password)',
    "session.auth = token or await fetch(secret.name)",
]


@pytest.mark.parametrize("indent", ["", "  "])
@pytest.mark.parametrize("file", ["/srv/shop/tasks.py", "<string>"])
@pytest.mark.parametrize("line", READABLE)
def test_source_lines_of_a_traceback_are_readable(line: str, file: str, indent: str) -> None:
    text = in_source(line, file, indent)
    assert mask_text(text) == text


LITERALS = {
    f'connect(password="{S}", x=1)': 'connect(password="********", x=1)',
    f"connect(password=decrypt(rb'{S}'), x='ok')": "connect(password=decrypt('********'), x='ok')",
    f'def run(password: str = "{S}"):': 'def run(password: str = "********"):',
    f'token = settings.TOKEN or "{S}"': 'token = settings.TOKEN or "********"',
    f"password = get('{S}": "password = get('********'",
    f"password = get(x['{S}', 1])": "password = get(x['********', ********])",
    "pin = int(123456)": "pin = int(********)",
    "pin = 123456": "pin = ********",
    f"token = f'{{one}} {S} {{two}}'": "token = '********'",
    f"password = 'one' '{S}'": "password = '********' '********'",
    f"x(token='one' + '{S}', y='ok')": "x(token='********' + '********', y='ok')",
    f"password = [one, '{S}']": "password = ********",
    f"headers = {{'Authorization': 'Bearer {S}'}}": "headers = {'Authorization': '********'}",
    f'connect("host=db password={S} dbname=x", wait=5)': 'connect("host=db password=******** dbname=x", wait=5)',
    f"raise OSError('the server refused password={S}')": "raise OSError('the server refused password=********')",
    f'get("https://x.example/?token={S}&page=2", key=key)': 'get("https://x.example/?token=********&page=2", key=key)',
    f"""json.loads('{{"password": "{S}", "page": 1}}')""": """json.loads('{"password": "********", "page": 1}')""",
    f'send("Cookie: a={S}; b={S}", token)': 'send("Cookie: ********", token)',
}


@pytest.mark.parametrize("line", LITERALS)
def test_literals_in_source_lines_are_hidden(line: str) -> None:
    found = mask_text(in_source(line))
    assert found == in_source(LITERALS[line])
    assert mask_text(found) == found, "a text that is hidden once more stays as it is"


@pytest.mark.parametrize("text", [f"token={S}", f"password: {S}", f"API_KEY = {S}"])
def test_lines_other_than_source_are_masked_in_a_traceback_too(text: str) -> None:
    python = in_source("run()")
    for one in (
        f"{python}\n    {text}",
        f"{python} {text}",
        python.replace("ValueError: no", f"ValueError: {text}"),
        in_source(text, "/srv/settings.ini"),
        in_source(text, "/srv/.env"),
        f'File "x.py", line 3\n{text}',
    ):
        assert S not in mask_text(one), one
