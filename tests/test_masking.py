"""Secrets are masked wherever values are shown."""

import copy
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobqueue.core.masking import MASK, is_secret_name, mask, mask_call, mask_text

SECRET_NAMES = [
    "password",
    "DB_PASSWORD",
    "password2",
    "passwd",
    "pass_word",
    "db_pass",
    "pwd",
    "passphrase",
    "api_key",
    "apikey",
    "apiKey",
    "API-KEY",
    "api.key",
    "key",
    "keys",
    "key2",
    "privateKey",
    "APIKey",
    "ssh_key",
    "token",
    "access_token",
    "authToken",
    "csrfmiddlewaretoken",
    "secret",
    "clientSecret",
    "AWS_SECRET_ACCESS_KEY",
    "authorization",
    "Authorization",
    "auth",
    "credential",
    "credentials",
]
HARMLESS_NAMES = [
    "monkey",
    "keyboard",
    "turkey",
    "hockey",
    "keyword",
    "Keynote",
    "name",
    "customer_id",
    "passenger",
    "passed",
    "bypass",
    "author",
    "path",
    "compass",
    "url",
    "_",
    "1",
]


def login(user, password, *tokens, api_key=None, **rest):
    """A task with secrets among its parameters."""


def send(context, token, text):
    """A task that takes its context."""


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_names_of_secrets_are_recognized(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", HARMLESS_NAMES)
def test_harmless_names_are_left_alone(name: str) -> None:
    assert not is_secret_name(name)


def test_values_of_secret_names_are_hidden_at_any_depth_whatever_their_type() -> None:
    value = {"password": "hunter2", "nested": [{"api_key": {"id": 1}, "n": 1}, ({"token": None},)], "keyboard": "qwerty"}
    assert mask(value) == {"password": MASK, "nested": [{"api_key": MASK, "n": 1}, ({"token": MASK},)], "keyboard": "qwerty"}


def test_the_original_is_not_changed_and_not_shared() -> None:
    value = {"a": [{"password": "x"}], "b": [1]}
    kept = copy.deepcopy(value)
    masked = mask(value)
    assert value == kept
    assert isinstance(masked, dict)
    assert masked["b"] is not value["b"]


@pytest.mark.parametrize("value", [None, True, 3, 2.5, "plain", [1, "a"], {"a": {"b": None}}, {1: 2}, b"x"])
def test_harmless_values_are_shown_as_they_are(value: object) -> None:
    assert mask(value) == value


def test_the_depth_is_bounded() -> None:
    value: object = "bottom"
    for _ in range(5000):
        value = [value]
    masked = mask(value)
    for _ in range(100):
        assert isinstance(masked, list)
        masked = masked[0]
    assert masked == "…"


def test_positional_arguments_are_judged_by_the_names_of_the_parameters() -> None:
    assert mask_call(login, ["eve", "hunter2", "t1", "t2"], {"api_key": "k", "n": {"secret": "s"}}) == (
        ["eve", MASK, MASK, MASK],
        {"api_key": MASK, "n": {"secret": MASK}},
    )


def test_the_context_is_not_among_the_arguments() -> None:
    assert mask_call(send, ["t", "hello"], {}, takes_context=True) == ([MASK, "hello"], {})
    assert mask_call(send, ["t", "hello"], {}) == (["t", MASK], {})


def test_arguments_that_no_longer_fit_or_have_no_function_are_judged_by_what_they_hold() -> None:
    assert mask_call(lambda: None, ["x", {"token": "t"}], {"key": 1}) == (["x", {"token": MASK}], {"key": MASK})
    assert mask_call(None, ["https://u:p@h/", [{"token": "t"}]], {"pwd": 1}) == ([f"https://u:{MASK}@h/", [{"token": MASK}]], {"pwd": MASK})
    assert mask_call(dict.fromkeys, ["x"], {}) == (["x"], {})
    assert mask_call(3, ["x"], {}) == (["x"], {})  # type: ignore[arg-type]


TEXTS = [
    ("https://u:p@host/", "https://u:********@host/"),
    ("see postgres://user:p@ss@host:5432/db now", "see postgres://user:********@host:5432/db now"),
    ("redis://:pw@host:6379/0", "redis://:********@host:6379/0"),
    ("https://ghp_x@github.com/a", "https://********@github.com/a"),
    ("ssh://git@github.com/a", "ssh://git@github.com/a"),
    ("http://localhost:8000/x by a@b", "http://localhost:8000/x by a@b"),
    ('{"url":"http://localhost:8000","mail":"a@b"}', '{"url":"http://localhost:8000","mail":"a@b"}'),
    ("https://h/?token=abc&x=1", "https://h/?token=********&x=1"),
    ("url=https://h/?token=abc&x=1", "url=https://h/?token=********&x=1"),
    ("password=hunter2, x=1", "password=********, x=1"),
    ("password = hunter2", "password = ********"),
    ("ValueError: password: hunter2", "ValueError: password: ********"),
    ('{"token": "abc", "a": 1}', '{"token": "********", "a": 1}'),
    ('{"token":"a\\"bc","a":1}', '{"token":"********","a":1}'),
    ('{\\"password\\": \\"x y\\", \\"a\\": 1}', '{\\"password\\": \\"********\\", \\"a\\": 1}'),
    ("{'api_key': 'k', 'n': 2}", "{'api_key': '********', 'n': 2}"),
    ("f(user='eve', password=b'x y', n=1)", "f(user='eve', password=********, n=1)"),
    ("{'tokens': ['a', 'b'], 'n': 1}", "{'tokens': ********, 'n': 1}"),
    ("password='its end was cut off", "password='********'"),
    ("tokens=['their end', 'was cut", "tokens=********"),
    ("Authorization: Bearer abc.def, x", "Authorization: ********, x"),
    ("password=", "password="),
    ("KeyError: 'x'", "KeyError: 'x'"),
    ("InvalidToken", "InvalidToken"),
    ("monkey=3 keyboard: 4", "monkey=3 keyboard: 4"),
    ("nothing here", "nothing here"),
    ("", ""),
]


@pytest.mark.parametrize(("text", "masked"), TEXTS)
def test_secrets_in_texts_are_hidden(text: str, masked: str) -> None:
    assert mask_text(text) == masked
    assert mask([text]) == [masked]


@pytest.mark.long
@given(st.text(st.characters(codec="ascii", exclude_categories=("C", "Z"), exclude_characters="\\'\""), min_size=8, max_size=20))
def test_a_quoted_secret_never_shows(tail: str) -> None:
    secret = f"hunter2{tail}"
    kwargs = {"user": "eve", "db_password": secret, "n": 1}
    for text in (repr(kwargs), json.dumps(kwargs), f"failed: {kwargs!r}", f"failed: {json.dumps(json.dumps(kwargs))}"):
        assert "hunter2" not in mask_text(text)
        assert "eve" in mask_text(text)
        assert "hunter2" not in mask_text(text[: len(text) - 12])


@pytest.mark.long
@pytest.mark.parametrize(
    "part",
    [
        "a",
        "a:",
        "a=a=",
        "a.",
        "://",
        "://a:",
        "https://",
        "token",
        'token="',
        "token='x ",
        "token=[x ",
        "token={",
        "token=b",
        "token=x,",
        '\\"token\\": \\"x ',
    ]
    + ["token=" + quote * 20 for quote in "\"'[({\\"],
)
def test_hostile_text_costs_time_in_proportion_to_its_length(part: str) -> None:
    def seconds(length: int) -> float:
        text = (part * length)[:length]
        started = time.thread_time()
        mask_text(text)
        return time.thread_time() - started

    # A quadratic cost would need minutes for this.
    assert seconds(500_000) < 5
