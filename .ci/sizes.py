"""Fail if a module of `jobqueue` or `tests`, or a function of `jobqueue`, is too long, or if `jobqueue/db` uses names beyond its exemption.

ruff can exempt only whole files from all banned names. `jobqueue/db` and `jobqueue/conf.py` need only one of them, so this script
checks the other ones.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
PACKAGE = CHECKOUT / "jobqueue"
TESTS = CHECKOUT / "tests"
MODULE_LINES = 300
TEST_LINES = 500
FUNCTION_LINES = 50
BANNED = {
    "jobqueue/db": {"django.conf.settings", "time.sleep"},
    "jobqueue/conf.py": {"django.db.connection", "django.db.connections", "time.sleep"},
}


def main() -> int:
    """Print every finding, one per line; return 1 if there is one."""
    findings = [finding for path in sorted(PACKAGE.rglob("*.py")) if "migrations" not in path.parts for finding in check(path)]
    lengths = {path.relative_to(CHECKOUT): len(path.read_text().splitlines()) for path in sorted(TESTS.rglob("*.py"))}
    findings += [
        f"{name}: {lines} lines, allowed are {TEST_LINES}: split it by subject." for name, lines in lengths.items() if lines > TEST_LINES
    ]
    print("\n".join(findings) or f"Modules have at most {MODULE_LINES} lines, functions {FUNCTION_LINES}, modules of tests {TEST_LINES}.")
    return 1 if findings else 0


def check(path: Path) -> Iterator[str]:
    """Yield the findings of one module."""
    name = path.relative_to(CHECKOUT).as_posix()
    text = path.read_text()
    lines = len(text.splitlines())
    if lines > MODULE_LINES:
        yield f"{name}: {lines} lines, allowed are {MODULE_LINES}: split it by role."
    banned = set().union(*(names for place, names in BANNED.items() if name == place or name.startswith(f"{place}/")))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES:
                yield f"{name}:{node.lineno}: {node.name} has {lines} lines, allowed are {FUNCTION_LINES}: give its steps names."
        yield from (f"{name}:{node.lineno}: {used} is banned in this module." for used in names_used(node) & banned)


def names_used(node: ast.AST) -> set[str]:
    """Return the dotted names that an import or an attribute such as ``time.sleep`` refers to."""
    if isinstance(node, ast.ImportFrom):
        return {f"{node.module}.{alias.name}" for alias in node.names}
    if isinstance(node, ast.Attribute):
        return {ast.unparse(node)}
    return set()


if __name__ == "__main__":
    sys.exit(main())
