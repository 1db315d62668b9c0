"""The page about other packages: its code can be read, and what it names of jobqueue is there."""

import ast
import importlib
import re
from pathlib import Path

import pytest
from django.core.management import load_command_class

from jobqueue import conf

PAGE = (Path(__file__).parent.parent / "docs" / "integrations.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS)
def test_each_example_can_be_read_and_what_it_imports_from_jobqueue_is_there(block: str) -> None:
    for node in ast.walk(ast.parse(block)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("jobqueue"):
            module = importlib.import_module(node.module or "")
            assert [one.name for one in node.names if not hasattr(module, one.name)] == []


def test_the_settings_and_options_that_it_names_are_there() -> None:
    assert {*re.findall(r'JOBQUEUE = \{"([A-Z_]+)"', PAGE)} <= {*conf.FIELDS}
    parser = load_command_class("jobqueue", "runworkers").create_parser("manage.py", "runworkers")
    known = {option for action in parser._actions for option in action.option_strings}
    table = PAGE.partition("| `db_worker` | `runworkers` |")[2]
    ours = {option for row in table.splitlines() for option in re.findall(r"--[a-z][a-z-]+", row.rpartition(" | ")[2].partition(";")[0])}
    assert ours
    assert ours <= known
