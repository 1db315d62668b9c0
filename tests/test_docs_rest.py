"""The page about REST says what the code says."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from django.test import RequestFactory

from jobqueue import conf
from jobqueue.api import access, params, responses, shapes
from jobqueue.api.endpoints import ENDPOINTS

PAGE = (Path(__file__).parent.parent / "docs" / "rest.md").read_text()
SECTIONS = dict(zip(*[iter(re.split(r"^##+ (.+)$", PAGE, flags=re.MULTILINE)[1:])] * 2, strict=True))


def test_the_table_has_every_endpoint_with_its_permissions_and_no_other() -> None:
    rows = re.findall(r"^\| ([A-Z]+) \| `(.+?)` \| .+? \| (.*?) ?\|$", SECTIONS["Endpoints"], re.MULTILINE)
    on_page = {(method, path): tuple(re.findall(r"`(\w+)`", names)) for method, path, names in rows}
    assert on_page == {(one.method, one.path): one.permissions for one in ENDPOINTS}


def test_the_table_of_errors_has_every_code() -> None:
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", SECTIONS["Errors"], re.MULTILINE)
    assert {(int(status), code) for status, code in rows} == {*responses.CODES.items(), (403, "csrf_failed")}


def test_the_table_of_answers_has_every_status() -> None:
    assert {int(status) for status in re.findall(r"^\| (2\d\d) \|", SECTIONS["Answers"], re.MULTILINE)} == {
        status for one in ENDPOINTS for status in one.success_statuses
    }


def test_the_words_of_the_report_are_its_fields() -> None:
    text = SECTIONS["Answers"].partition("The report on a job")[2]
    named = set(re.findall(r"`(\w+)`", text))
    assert named <= set(shapes.SHAPES["Job"]["properties"])


def test_the_error_on_the_page_has_the_fields_of_one() -> None:
    shown = json.loads(SECTIONS["Errors"].split("```json")[1].split("```")[0])
    assert set(shown["error"]) <= set(shapes.SHAPES["Error"]["properties"]["error"]["properties"])


def test_the_bounds_are_the_codes() -> None:
    assert f"`limit` ({params.DEFAULT_LINES}; at most {params.MAX_LINES})" in PAGE.replace("\n", " ")


def test_the_schemes_that_are_no_tokens_are_the_codes() -> None:
    (named,) = re.findall(r"send by themselves \((.+?)\)", PAGE)
    assert tuple(named.lower().split(", ")) == access.AMBIENT


@pytest.mark.parametrize(("header", "known"), [("Bearer s3cret", True), ("Bearer other", False), ("Basic s3cret", False), ("", False)])
def test_the_authenticator_on_the_page_works(monkeypatch: pytest.MonkeyPatch, settings: Any, header: str, known: bool) -> None:
    user = SimpleNamespace(is_authenticated=True, is_active=True)

    def filtered(digest: str) -> Any:
        found = SimpleNamespace(user=user) if digest == hashlib.sha256(b"s3cret").hexdigest() else None
        return SimpleNamespace(first=lambda: found)

    models: Any = ModuleType("shop.models")
    models.ApiToken = SimpleNamespace(objects=SimpleNamespace(select_related=lambda name: SimpleNamespace(filter=filtered)))
    tokens = ModuleType("shop.tokens")
    for module in (ModuleType("shop"), models, tokens):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    blocks = re.findall(r"```python\n(.+?)```", SECTIONS["Authentication"], re.DOTALL)
    exec(blocks[0], vars(tokens))  # noqa: S102 - a page of this project
    assert len(blocks[0].split("def ")[1].strip().splitlines()) <= 10
    given: dict[str, Any] = {}
    exec(blocks[1], given)  # noqa: S102 - a page of this project
    settings.JOBQUEUE = given["JOBQUEUE"]
    authenticator = conf.api_authenticator()
    assert authenticator is not None
    found = authenticator(RequestFactory().get("/", headers={"Authorization": header}))
    assert (found is user) == known
