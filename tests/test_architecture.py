"""The claims of CONTRIBUTING about the code: who writes `status`, the layers, the sizes, and no circles between modules."""

from __future__ import annotations

import ast
import functools
import importlib.util
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent
PACKAGE = CHECKOUT / "jobqueue"
WRITERS = ("jobqueue/db/", "jobqueue/managers/", "jobqueue/migrations/")
SQL_WRITE = re.compile(r"\bUPDATE\s+\S+(\s+AS\s+\w+)?\s+SET\b|\bINSERT\s+INTO\b|\bDELETE\s+FROM\b")
ORM_WRITES = ("update", "create", "get_or_create", "update_or_create", "bulk_create", "bulk_update")

# Calls outside of `WRITERS` that assign a `status`, or columns that the call does not name, and why each is no move of a job.
# The list may only shrink.
OTHER_STATUSES = {
    "jobqueue/lifecycle/aside.py:_end_what_belongs_to_it": "the status of a phase",
    "jobqueue/lifecycle/enqueue.py:columns": "a new job has no status before; the insert is a statement of db/",
    "jobqueue/lifecycle/phases.py:_begin": "the status of a phase; the job's columns that its callers name are different ones",
    "jobqueue/lifecycle/phases.py:finish": "the status of a phase",
    "jobqueue/lifecycle/phases.py:drop_unfinished": "the columns that `_started` returns are different ones",
    "jobqueue/lifecycle/phases.py:settle": "the status of a phase",
    "jobqueue/testing/inline.py:_attempt": "a task result of the inline backend, which has no database",
    "jobqueue/testing/inline.py:_store_end": "a task result of the inline backend, which has no database",
    "jobqueue/webhooks/outbox.py:give_up": "the status of a delivery",
    "jobqueue/webhooks/outbox.py:redeliver": "the status of a delivery",
    "jobqueue/worker/reporting/ends.py:_send_finished": "the job in memory that the signal carries",
    "jobqueue/worker/reporting/ends.py:_send_lost_finished": "the job in memory that the signal carries",
}

# The modules that import modules by name at run time, and why none of them gets around a layer. The list may only shrink.
BY_NAME = {
    "jobqueue/__init__.py": "the public names, each when it is first used",
    "jobqueue/apps.py": "modules that register themselves",
    "jobqueue/checks.py": "functions that settings name",
    "jobqueue/compat.py": "Django's tasks or their backport",
    "jobqueue/conf.py": "functions that settings name",
    "jobqueue/db/database.py": "the statements of the database in use, because the driver of another may be missing",
    "jobqueue/declared/imports.py": "modules of the project",
    "jobqueue/testing/__init__.py": "the public names, each when it is first used",
    "jobqueue/worker/process/childmain.py": "the function that sets up a worker process, named by its parent",
}


@pytest.mark.long
def test_status_is_assigned_in_db_and_managers_only() -> None:
    found = {place for path in modules().values() for place in status_writes(path)}

    assert not found - OTHER_STATUSES.keys(), "Move the statement to jobqueue/db/ or jobqueue/managers/."
    assert not OTHER_STATUSES.keys() - found, "Remove these from OTHER_STATUSES: they are gone."


@pytest.mark.parametrize(
    "code",
    [
        "def f(jobs):\n    jobs.update(status='QUEUED')",
        "def f(job):\n    job.status = 'QUEUED'",
        "def f(jobs):\n    jobs.bulk_update(rows, ['status'])",
        "def f(changes):\n    Job.objects.current.update(**changes)",
        "def f(cursor):\n    cursor.execute(f'UPDATE {table} AS j SET status = %s')",
        "def f(cursor):\n    cursor.execute('INSERT INTO jobqueue_job (status) VALUES (%s)')",
    ],
)
def test_each_way_to_assign_status_is_found(code: str, tmp_path: Path) -> None:
    path = tmp_path / "sample.py"
    path.write_text(code)

    assert [place.rpartition(":")[2] for place in status_writes(path, tmp_path)] == ["f"]


def test_contributing_shows_the_layers_of_pyproject() -> None:
    text = (CHECKOUT / "CONTRIBUTING.md").read_text()
    shown = re.search(r"## Layers\n.*?```text\n(.*?)```", text, re.DOTALL)

    assert shown is not None
    assert [line.split() for line in shown[1].splitlines()] == layers()


def test_every_module_is_in_one_layer() -> None:
    tops = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()} - {"__init__"}

    assert sorted(name for layer in layers() for name in layer) == sorted(tops)


@pytest.mark.long
def test_modules_and_functions_are_short() -> None:
    assert [finding for path in modules().values() for finding in sizes().check(path)] == []


@pytest.mark.long
def test_modules_form_no_circle_imports_for_types_included() -> None:
    found = circles({name: imported(name) for name in modules()})

    assert found == [], "These modules import each other in a circle: move what both need to a module below them."


@pytest.mark.long
def test_modules_are_imported_by_name_only_for_a_reason_that_is_listed() -> None:
    found = {path.relative_to(CHECKOUT).as_posix() for path in modules().values() if any(map(imports_by_name, ast.walk(parsed(path))))}

    assert found == BY_NAME.keys(), "Move what both modules need to a layer below them, or name the reason in BY_NAME."


def test_a_circle_is_found_with_those_that_are_not_part_of_it_left_out() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}) == [{"b", "c"}]


# Status


def status_writes(path: Path, root: Path = CHECKOUT) -> Iterator[str]:
    """Yield module and function of each statement that may assign `status`."""
    name = path.relative_to(root).as_posix()
    if name.startswith(WRITERS):
        return
    tree = parsed(path)
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and any(map(assigns_status, own_nodes(function))):
            yield f"{name}:{function.name}"
    if any(map(assigns_status, own_nodes(tree))):
        yield f"{name}:module"


@functools.cache
def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a module."""
    return ast.parse(path.read_text())


def own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function or module without docstrings and without those of the functions inside it."""
    for node in ast.iter_child_nodes(scope):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        ):
            continue
        yield node
        yield from own_nodes(node)


def assigns_status(node: ast.AST) -> bool:
    """Return whether a node is SQL that writes, an ORM call that sets `status` or may set it, or an assignment to `.status`."""
    if isinstance(node, ast.Constant | ast.JoinedStr):
        return SQL_WRITE.search(text_of(node)) is not None
    if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return any(isinstance(target, ast.Attribute) and target.attr == "status" and not is_self(target) for target in targets)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr not in ORM_WRITES:
        return False
    named = any(keyword.arg == "status" for keyword in node.keywords)
    listed = any(isinstance(one, ast.Constant) and one.value == "status" for argument in node.args for one in ast.walk(argument))
    unnamed = any(keyword.arg is None for keyword in node.keywords) and ast.unparse(node.func).startswith("Job.objects")
    return named or listed or unnamed


def text_of(node: ast.AST) -> str:
    """Return a text, what an f-string inserts as one letter."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    return "".join(text_of(part) if isinstance(part, ast.Constant) else "x" for part in getattr(node, "values", []))


def is_self(target: ast.Attribute) -> bool:
    """Return whether an attribute is one of the object whose method this is."""
    return isinstance(target.value, ast.Name) and target.value.id == "self"


# Layers and sizes


def layers() -> list[list[str]]:
    """Return the names of each layer of pyproject, the highest first."""
    settings = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    [contract] = [one for one in settings["tool"]["importlinter"]["contracts"] if one["name"] == "A module imports from lower layers only"]
    return [re.findall(r"\w+", layer) for layer in contract["layers"]]


@functools.cache
def sizes() -> Any:
    """Return the module ``.ci/sizes.py``."""
    spec = importlib.util.spec_from_file_location("sizes", CHECKOUT / ".ci/sizes.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# Circles


@functools.cache
def modules() -> dict[str, Path]:
    """Return the modules of the package by dotted name, without migrations."""
    found = {path.relative_to(CHECKOUT): path for path in sorted(PACKAGE.rglob("*.py")) if "migrations" not in path.parts}
    return {".".join(short.with_suffix("").parts).removesuffix(".__init__"): path for short, path in found.items()}


def imported(name: str) -> set[str]:
    """Return the modules of the package that a module imports anywhere, for types only and by name included."""
    found = set[str]()
    for node in ast.walk(parsed(modules()[name])):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            dotted = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {one if one in modules() else str(node.module) for one in dotted}
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("importlib.import_module", "import_module", "import_string"):
            found |= {one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)}
    return found & modules().keys() - {name}


def imports_by_name(node: ast.AST) -> bool:
    """Return whether a node imports a module by its name."""
    return isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in ("import_module", "import_string", "__import__")


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """Return the sets of modules in which each can be reached from each other."""
    reach = {name: reachable(graph, name) for name in graph}
    found = {name: {other for other in reach[name] if name in reach[other]} for name in graph}
    return [set(one) for one in {frozenset(circle) for circle in found.values()} if len(one) > 1]


def reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    """Return what can be reached from a node, itself included."""
    seen, ahead = {start}, [start]
    while ahead:
        new = graph[ahead.pop()] - seen
        seen |= new
        ahead += new
    return seen


def test_the_files_that_the_page_of_the_architecture_names_exist() -> None:
    names = set(re.findall(r"`([a-z_/]+(?:\.py|/))`", (CHECKOUT / "docs" / "architecture.md").read_text()))

    assert len(names) > 40
    assert [name for name in sorted(names) if not ((CHECKOUT / name).exists() or (PACKAGE / name).exists())] == []
