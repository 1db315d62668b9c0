"""The forms in which secrets appear in what tasks raise, print and are given: none of them is shown."""

from __future__ import annotations

import json
import re
import subprocess
import time
from typing import Any

import pytest

from jobqueue.core import secret_forms
from jobqueue.core.masking import MASK, Mask, is_secret_name, mask, mask_call, mask_text
from jobqueue.core.texts import error_text, exception_summary, shorten

S = "hunter2-Q7zX9"  # what must not be seen
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N"
KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n{}\n-----END RSA PRIVATE KEY-----"
B64 = "dXNlcjpodW50ZXIyLVE3elg5"

FORMS = [
    # Command lines
    f"--password={S}",
    f"-password={S}",
    f"--password {S}",
    f"-token={S}",
    f"-token {S}",
    f"--api-key '{S}'",
    f'--api-key "{S} and more"',
    f"mysqldump --password={S} --host=db shop",
    f"curl -u bob:{S} https://example.com",
    f"curl --user bob:{S} https://example.com",
    f"sshpass -p {S} ssh host",
    f"TOKEN={S} ./run.sh",
    f"export DB_PASSWORD='{S}'",
    f'declare -x AWS_SECRET_ACCESS_KEY="{S}"',
    f"-e POSTGRES_PASSWORD={S}",
    # Lists of arguments, as in the text of CalledProcessError
    f"Command '['mysqldump', '--password={S}', 'shop']' returned non-zero exit status 2.",
    f"Command '['mysqldump', '--password', '{S}', 'shop']' returned non-zero exit status 2.",
    f"Command '['curl', '-H', 'Authorization: Bearer {S}', 'https://x']' died",
    f"Command '['curl', '-u', 'bob:{S}']' died",
    f'["--token", "{S}"]',
    f"('--secret', b'{S}')",
    # URLs
    f"https://bob:{S}@example.com/x",
    f"https://{S}@github.com/a/b.git",
    f"https://{S}:x-oauth-basic@github.com/a/b.git",
    f"https://{S}:x@api.example/v1",
    f"https://{S}:@api.example/v1",
    f"https://hooks.slack.com/services/T0ABC/B0ABC/{S}",
    f"HTTPSConnectionPool(host='hooks.slack.com', port=443): Max retries exceeded with url: /services/T0ABC/B0ABC/{S} (Caused by x)",
    f"https://discord.com/api/webhooks/1234567/{S}",
    f"https://discordapp.com/api/v10/webhooks/1234567/{S}/slack",
    f"Max retries exceeded with url: /bot1234567:{S}/sendMessage",
    f"https://shop.webhook.office.com/webhookb2/{S}/IncomingWebhook/x",
    f"https://hooks.zapier.com/hooks/catch/1234567/{S}/",
    f"postgres://app:{S}@db:5432/shop",
    f"redis://:{S}@cache:6379/0",
    f"amqp://guest:{S}@mq//",
    f"could not connect to 'mongodb+srv://u:{S}@cluster.example/x?retry=1'",
    f"https://blob.example/x?sv=2020&sig={S}&se=1",
    f"https://x.example/?X-Amz-Signature={S}",
    f"https://x.example/?X-Amz-Security-Token={S}&a=1",
    f"https://x.example/cb?access_token={S}#frag",
    f"https://x.example/#access_token={S}",
    f"https://maps.example/api?key={S}",
    f"root:{S}@tcp(127.0.0.1:3306)/shop",
    f"jdbc:mysql://db/shop?user=root&password={S}",
    f"Server=db;User Id=sa;Password={S};",
    f"dsn: host=db password={S}",
    # URLs that were cut
    f"https://bob:{S}",
    f"cannot reach https://bob:{S}… [cut, 2000 bytes]",
    f"cannot reach https://bob:{S}\n… [cut, 2000 bytes]\nend",
    f'{{"url": "https://bob:{S}"}}',
    # Headers
    f"Authorization: Bearer {S}",
    f"authorization: bearer {S}",
    f"Bearer {S}",
    f"sent 'Bearer {S}' to the server",
    f"Authorization: Basic {B64}",
    f"Basic {B64}",
    f"Proxy-Authorization: Basic {B64}",
    f'Authorization: Digest username="bob", response={S}',
    f"Authorization: AWS4-HMAC-SHA256 Credential=AKIA/x, Signature={S}",
    f"Cookie: theme=dark; sessionid={S}; lang=de",
    f"Cookie: a={S}; b=2",
    f"Set-Cookie: sid={S}; HttpOnly; Path=/",
    f"X-Api-Key: {S}",
    f"X-Hub-Signature-256: sha256={S}",
    f"{{'Cookie': 'a=1; sid={S}'}}",
    f"[('Authorization', 'Bearer {S}'), ('Accept', '*/*')]",
    f"('X-Auth-Token', '{S}')",
    # JSON, Python, other notations
    f'{{"password": "{S}"}}',
    f'{{"user": {{"password": "{S}"}}}}',
    json.dumps(json.dumps({"password": S})),
    json.dumps(json.dumps(json.dumps({"password": S, "a": 1}))),
    f'{{"name": "DB_PASSWORD", "value": "{S}"}}',
    f"{{'password': '{S}', 'n': 1}}",
    f"Config(user='bob', password='{S}')",
    f"login(password=b'{S}')",
    f'os.environ["API_TOKEN"] = "{S}"',
    f"password => '{S}'",
    f"password := {S}",
    f"password: {S}",
    f"password : {S}",
    f"<password>{S}</password>",
    f'<wsse:Password Type="text">{S}</wsse:Password>',
    f'<add key="Password" value="{S}"/>',
    f"<property name='db.password' value='{S}'/>",
    f"invalid password '{S}' for bob",
    f'the token is "{S}"',
    f"session_id={S}",
    f"PHPSESSID={S}",
    f"jwt={S}",
    f"otp: {S}",
    f"pin={S}",
    f"passcode: {S}",
    f"pw={S}",
    f"cvv={S}",
    f"iban: {S}",
    f"signature: {S}",
    f"passphrase='{S}'",
    f"client_secret={S}&grant_type=x",
    f"password='{S} its end was cut off",
    # Arrows and full-width signs
    *(f"secret {arrow} {S}" for arrow in ("→", "->", "-->", "⇒", "=>", "➜")),
    f"password：{S}",  # noqa: RUF001
    # Words, without a sign or quotes
    f"password is {S}",
    f"password is: '{S}'",
    f"the password was {S}.",
    f"Your new password is: {S}",
    f"db_password is {S}",
    "token is hunter2",
    f"machine example.com login bob password {S}",
    f"machine example.com\n  login bob\n  password {S}\n",
    f"default login anonymous account x password {S}",
    "PIN 20482048 hunter2".removesuffix(" hunter2"),
    # Other languages
    f"Passwort: {S}",
    f"Kennwort = {S}",
    f"Passwort ist {S}",
    f"mot de passe : {S}",
    f"Mot de passe: '{S}'",
    f"contraseña: {S}",
    f"contrasena={S}",
    f"senha: {S}",
    f"wachtwoord: {S}",
    f"пароль: {S}",
    f"密码：{S}",  # noqa: RUF001
    f"パスワード: {S}",
    f'{{"mot_de_passe": "{S}"}}',
    f'{{"contraseña": "{S}"}}',
    # Short options of programs
    f"mysql -uroot -p{S} shop",
    f"mysqldump -h db -p{S} shop",
    f"Command '['mysqldump', '-u', 'root', '-p{S}', 'shop']' died",
    f"mariadb-dump -p{S} shop",
    f"7z x -p{S} a.7z",
    f"redis-cli -h cache -a {S} PING",
    f"mongodump --host db -u app -p {S}",
    f"sqlcmd -S db -U sa -P {S}",
    f"ldapsearch -x -D cn=admin -w {S}",
    f"unzip -P {S} a.zip",
    f"['redis-cli', '-a', '{S}']",
    # Percent-encoded
    f"https://x.example/login?next=%2Fcb%3Faccess_token%3D{S}%26a%3D1",
    f"next=%2Fcb%3Fa%3D1%26access_token%3D{S}",
    f"access_token%3d{S}",
    f"next=%252Fcb%253Faccess_token%253D{S}%2526a%253D1",
    f"state=%7B%22password%22%3A%22{S}%22%7D",
    f"url=postgres%3A%2F%2Fapp%3A{S}%40db%2Fshop",
    # By themselves
    f"got {JWT[:30]}{S.replace('-', '')}.{S}",
    KEY.format(S),
    KEY.format(S).replace("\n", "\\n"),
    KEY.format(S)[:60],
    f"-----BEGIN OPENSSH PRIVATE KEY-----\n{S}",
    f"ghp_{S.replace('-', '')}ABCDEFGHIJKLMNOPQRSTUVWXYZ hunter2".removesuffix(" hunter2"),
    f"sk_live_{S.replace('-', '')}ABCDEF",
    f"xoxb-1234-{S}",
    # What a database says of a row
    f"new row violates check\nDETAIL:  Failing row contains (1, {S}, null).",
    f"duplicate key\nDETAIL:  Key (tenant, unique_key)=(, {S}) already exists.",
]
HARMLESS = [
    "ValueError: the file /tmp/a-b.txt has 3 lines",
    "http://localhost:8000/x and https://[::1]:443/y at host:80",
    "Bearer token is missing, as is basic authentication",
    "user-agent: curl; content-type: text/html; a=1",
    "Command '['ls', '-l', '--color=auto', '/tmp']' returned non-zero exit status 2.",
    "see https://example.com:8443/a?page=2&sort=name#top.",
    "spinning design: 3, shipping=4, hotpot: 5, passenger: bob, monkey=x, cookiecutter: y",
    "KeyError: 'x'",
    "in the multi-threaded program, well-known: yes",
    "The time is 12:30:45; ratio 3:4",
    "The password is required. Your token is invalid, the secret was not found, and the API key is missing",
    "password is too short; token was revoked; secret is None; the token is not new",
    "pin 4 is high, pins 12 and 13 are low; pin 7",
    "login with password authentication",
    "Das Passwort ist falsch",
    "docker run mysql -p3306:3306",
    "docker run mongo -p 27017:27017",
    "psql -p 5432; ls -p /tmp; unzip -p a.zip",
    "def token(self) -> str, a->b, a%3Db%26page%3D2",
    "the machine shop has no login",
    "GET /services/tasks/blue/, /api/webhooks/ and /bots/1/page; <add name='color' value='red'/>",
]


def shown(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]", "", text)


def test_the_table_has_at_least_66_forms() -> None:
    assert len(set(FORMS)) >= 66


@pytest.mark.parametrize("text", FORMS)
def test_no_form_of_a_secret_is_shown(text: str) -> None:
    for one in (mask_text(text), mask_text(f"Traceback:\n  x()\nRuntimeError: {text}\n  y()"), str(mask([text, {"a": text}]))):
        assert "hunter2" not in one
        assert "hunter2" not in shown(one)
        assert B64 not in one
    assert mask_text(mask_text(text)) == mask_text(text)  # what was hidden when it was stored is shown as it is


@pytest.mark.parametrize("text", HARMLESS)
def test_harmless_texts_are_shown_as_they_are(text: str) -> None:
    assert mask_text(text) == text


def test_the_error_of_a_real_command_shows_no_secret() -> None:
    for command in (["false", f"--password={S}"], ["false", "-token", S]):
        with pytest.raises(subprocess.CalledProcessError) as caught:
            subprocess.run(command, check=True)
        assert S not in exception_summary(caught.value, Mask())
        assert S not in error_text(caught.value, hide=Mask())


@pytest.mark.parametrize(
    "name",
    [
        "cookie",
        "Set-Cookie",
        "session_id",
        "sessionId",
        "jwt",
        "otp",
        "pin",
        "card_pin",
        "passcode",
        "pw",
        "dsn",
        "cvv",
        "iban",
        "signature",
        "bearer",
    ],
)
def test_more_names_are_secret(name: str) -> None:
    assert is_secret_name(name)
    assert mask({name: "x"}) == {name: MASK}


@pytest.mark.parametrize(
    "name", ["spin", "shipping", "design", "hotpot", "opinion", "assignature2d", "sessions", "session", "spw", "cookiecutter"]
)
def test_words_that_contain_a_secret_name_are_harmless(name: str) -> None:
    assert not is_secret_name(name)


def test_the_setting_adds_names(settings: Any) -> None:
    assert mask({"tax_id": "12345"}) == {"tax_id": "12345"}
    settings.JOBQUEUE = {"SECRET_NAMES": ["tax_id", "mothersName"]}
    assert mask({"tax_id": "12345", "customerTaxId": "1", "taxi": 2}) == {"tax_id": MASK, "customerTaxId": MASK, "taxi": 2}
    assert mask_text("tax-id: 12345, mothers_name=Eve") == f"tax-id: {MASK}, mothers_name={MASK}"


@pytest.mark.parametrize("wrong", ["text", 3, [3, None, ""], {"a": 1}])
def test_a_wrong_setting_hides_what_is_always_hidden(settings: Any, wrong: Any) -> None:
    settings.JOBQUEUE = {"SECRET_NAMES": wrong}
    assert mask_text("password=x") == f"password={MASK}"


# By value


def task(context: Any, customer: str, password: str, *codes: str, **more: Any) -> None:
    """A task."""


def of_job(*args: Any, fields: tuple[str, ...] = (), metadata: Any = None, **kwargs: Any) -> Mask:
    return Mask.of_job(task, list(args), kwargs, metadata, takes_context=True, fields=fields)


@pytest.mark.parametrize(
    "hide",
    [
        of_job("bob", S),
        of_job("bob", "x", nested={"deep": [{"api_key": S}]}),
        of_job("bob", "x", token={"value": [S]}),
        of_job("bob", "x", metadata={"auth": {"x": S}}),
        of_job("bob", "x", "y", S, fields=("codes",)),
        of_job("bob", "x", headers=[["Authorization", S]]),
        of_job("bob", "x", argv=["mysqldump", "--password", S]),
        of_job("bob", "x", env=[{"name": "DB_PASSWORD", "value": S}]),
        of_job("bob", "x", url=f"postgres://app:{S}@db/x"),
        of_job(f"https://bob:{S}@h/", "x"),
    ],
)
def test_a_value_that_is_secret_in_the_arguments_is_hidden_wherever_it_occurs(hide: Mask) -> None:
    assert hide(f"the server refused {S}") == f"the server refused {MASK}"
    assert hide.value({"said": [f"<{S}>"]}) == {"said": [f"<{MASK}>"]}
    assert S not in repr(hide)


@pytest.mark.parametrize("secret", ['p@ss w/"ö" \\ %', "two\nlines of a very long secret", "  a  b  ", "<b>&amp;"])
def test_the_escaped_forms_of_a_value_are_hidden(secret: str) -> None:
    from html import escape
    from urllib.parse import quote, quote_plus

    hide = of_job("bob", secret)
    for form in (secret, repr(secret), json.dumps(secret), quote(secret), quote(secret, safe=""), quote_plus(secret), escape(secret)):
        assert form.strip("'\"") not in hide(f"refused {form} today")


def test_short_and_common_values_are_not_searched() -> None:
    hide = of_job("bob", "abc", auth="none", token=True, key=1234)
    assert hide("abc none True 1234 is so") == "abc none True 1234 is so"


@pytest.mark.parametrize("filler", ["x-oauth-basic", "x", ""])
def test_a_key_as_the_user_of_a_url_is_hidden(filler: str) -> None:
    hide = of_job(f"https://{S}:{filler}@api.example/v1", "x")
    assert S not in hide(f"cannot clone https://{S}:{filler}@api.example/v1 with {S}")
    assert S not in str(hide.call(task, [f"https://{S}:{filler}@api.example/v1"], {}))


def test_a_secret_number_is_hidden_in_texts_too() -> None:
    hide = of_job("bob", 47114711, card={"pins": [123456, -1]}, fields=("card",))
    assert hide("bob has 47114711 and 123456, 1 of 47") == f"bob has {MASK} and {MASK}, 1 of 47"
    assert hide.call(task, ["bob", 47114711], {}, takes_context=True)[0] == ["bob", MASK]


def test_a_value_that_contains_another_is_hidden_whole() -> None:
    assert of_job("bob", "abcd", token="abcdefgh")("it was abcdefgh") == f"it was {MASK}"


def test_of_far_too_many_values_no_text_is_shown() -> None:
    hide = of_job("bob", "x", tokens=[f"value{number}" for number in range(20_000)])
    assert hide("value19999 and more") == MASK


def test_the_option_of_a_task_names_its_secret_arguments() -> None:
    args, kwargs = mask_call(task, ["bob", "x"], {"n": {"customer": "eve"}}, takes_context=True, fields=("customer",))
    assert (args, kwargs) == ([MASK, MASK], {"n": {"customer": MASK}})
    assert of_job("bobby tables", "x", fields=("customer",))("hello bobby tables") == f"hello {MASK}"


# Hidden, then cut


@pytest.mark.parametrize("limit", range(40, 140, 3))
@pytest.mark.parametrize(
    "text", [f"cannot reach https://bob:{S * 3}@example.com/x", f"it said {S * 3} again", f"password='{S * 3}' was wrong"]
)
def test_no_cut_shows_a_part_of_a_secret(limit: int, text: str) -> None:
    hide = of_job("bob", S * 3)
    for one in (hide.cut(text, limit), hide.cut(text + " x" * 50_000, limit)):
        assert len(one.encode()) <= limit
        assert "hunt" not in one


def test_the_mark_of_a_cut_names_the_size_of_the_whole() -> None:
    assert shorten("x" * 1_000_000, 100, Mask()).endswith("… [cut, 1000000 bytes]")
    assert shorten("x" * 1_000_000, 100, Mask()) == shorten("x" * 1_000_000, 100)


def test_the_text_of_an_error_is_hidden_before_it_is_cut() -> None:
    error = ValueError(f"{'a' * 485} https://bob:{S}@example.com/")
    error.add_note(f"{'b' * 1580} https://bob:{S}@example.com/")
    for size in range(400, 2000, 40):
        long = ValueError(f"{'a' * size} https://bob:{S}@example.com/ and {S}")
        assert "hunt" not in exception_summary(long, of_job("bob", S))
        assert "hunt" not in error_text(long, 4000, hide=of_job("bob", S))
    assert "hunt" not in exception_summary(error, Mask())
    assert "hunt" not in error_text(error, hide=Mask())


# Time


ADVERSARIAL = [
    *("-", "--", "-a", "--token", "--token ", "-token 'x ", "'--token', '", "-u a:", "sshpass -p", "('token','", "<a", "<a>", "<token>x"),
    *("token '", "token is '", 'name":"token","value":"', "-----BEGIN PRIVATE KEY-----", "Bearer ", "Basic A", "eyJ", "ghp_", "a:b@tcp("),
    *(
        "://a:b",
        "://[",
        "Cookie: ",
        "authorization: x ",
        "iban: DE12 ",
        "Key (",
        "Failing row contains ",
        'key=\\"',
        'token="\\',
        "a]",
        "é:",
    ),
    *('File "a.py", line 1\n  token=a(', 'File "', '\n  File "a.py", line 1\n    key=b"', " token=a['", 'token=a"\\', "key=lambda x: (("),
    *(
        "mysql ",
        "mysql -p",
        "redis-cli -a ",
        "token%3D",
        "a%3Ab%3A",
        "%3A%2F%2Fa%3A",
        "password is ",
        "machine a ",
        "login a b ",
        "passwort: ",
    ),
    *("PIN 1", "пароль", "secret -> ", "%22a%22%3A", "mot de passe : "),
    *("token[", "token=>", "token==", "pass pwd secret key ", "token.", "a-", "secret\n:", "password :"),
]


@pytest.mark.long
@pytest.mark.parametrize("part", ADVERSARIAL)
def test_hostile_text_costs_time_in_proportion_to_its_length(part: str) -> None:
    def seconds(length: int) -> float:
        texts = [(start + part * length)[:length] for start in ("password=", 'File "a.py", line 1\n  password=')]
        started = time.thread_time()
        for text in texts:
            mask_text(text)
        return time.thread_time() - started

    # A quadratic cost would need minutes for this.
    assert seconds(200_000) < 10


def test_a_text_without_a_word_of_a_secret_is_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secret_forms, "_hide_named", lambda *_: pytest.fail("searched"))
    assert mask_text("ValueError: 3 of 4 lines: a=1") == "ValueError: 3 of 4 lines: a=1"
