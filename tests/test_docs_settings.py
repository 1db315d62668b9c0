"""The page about settings says what the code says."""

import ast
import re
from pathlib import Path

import pytest
from django.core.management import load_command_class

from jobqueue import checks, conf
from jobqueue.core import setting_problems

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "settings.md").read_text()
ROWS = {row[0]: row[1:] for row in re.findall(r"^\| `([A-Z_]+)` \| `(.+?)` \| (.+?) \| (.+?) \| (.+?) \|$", PAGE, re.MULTILINE)}


def test_the_table_has_every_setting_and_no_other_in_the_order_of_the_code() -> None:
    assert list(ROWS) == list(conf.FIELDS)


@pytest.mark.parametrize("name", conf.FIELDS)
def test_the_default_is_the_codes(name: str) -> None:
    default = ast.literal_eval(ROWS[name][0])
    assert default == conf.FIELDS[name].default
    assert type(default) is type(conf.FIELDS[name].default)


@pytest.mark.parametrize("name", conf.FIELDS)
def test_the_rule_is_the_codes(name: str) -> None:
    assert ROWS[name][3].partition("; ")[0] == conf.FIELDS[name].metadata["rule"].text


@pytest.mark.parametrize("name", conf.FIELDS)
def test_the_option_is_what_runworkers_takes(name: str) -> None:
    parser = load_command_class("jobqueue", "runworkers").create_parser("manage.py", "runworkers")
    options = [option for action in parser._actions if action.dest == name.lower() for option in action.option_strings]
    assert ROWS[name][1] == (", ".join(f"`{option}`" for option in options) or "none")


def test_every_name_on_the_page_in_capitals_is_a_setting() -> None:
    example = PAGE.split("```")[1]
    assert {*re.findall(r'"([A-Z_]+)":', example)} <= {*conf.FIELDS}
    named = {*re.findall(r"`([A-Z]+_[A-Z_]+)`", PAGE)}
    assert named <= {*conf.FIELDS, conf.RELEASE_VARIABLE}


def test_the_table_of_checks_has_every_id_and_no_other() -> None:
    source = "".join(Path(module.__file__).read_text() for module in (checks, conf, setting_problems))
    in_code = {f"jobqueue.{one}" for one in re.findall(r'"(?:jobqueue\.)?([EW]\d{3})"', source)}
    assert re.findall(r"^\| `(jobqueue\.[EW]\d{3})` \|", PAGE, re.MULTILINE) == sorted(in_code)
