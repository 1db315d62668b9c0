"""Reject words that CONTRIBUTING, "Language", replaces: in documentation, docstrings, comments, and messages.

It knows words, not sentences, so it does not replace a reader.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
PLACES = (
    "jobqueue/**/*.py",
    "jobqueue/templates/**/*.html",
    "demo_project/**/*.py",
    "bench/**/*.py",
    "tests/**/*.py",
    "docs/*.md",
    "*.md",
    ".ci/*.py",
)
SKIPPED = ("CHANGELOG.md", ".ci/words.py")

# A word, and what to write in its place.
WORDS = {
    r"whoever|somebody|someone|nobody|everybody|anybody|no one": "name the actor: worker, leader, operator, caller, task, receiver, user",
    r"one's|oneself|others|we|us|ours?": "name the actor",
    r"tells?|told|telling": "return, report, record, notify, state",
    r"hears?|heard|hearing": "receive, be notified, get",
    r"looks?|looked|looking(?! (?:up|into))": "check, query, read, poll",
    r"bears?|borne|minds?|minded": "allow, tolerate, take into account",
    r"brings?|brought": "write, copy, load, move",
    r"stands?(?! in for)|stood": "is, waits, exists",
    r"(?:go|goes|going|went) on": "continue, resume",
    r"comes? back|came back": "return, reconnect",
    r"so (?:many|long|much|few)": "up to N, N, while",
    r"lets? (?:go|in|out|the)": "allow, release, promote",
    r"what(?:ever)? (?:nobody|somebody|whoever)": "name the thing",
}
BANNED = re.compile(rf"\b(?:{'|'.join(WORDS)})\b", re.IGNORECASE)
CODE = re.compile(r"```.*?```|``[^`]*``|`[^`]*`|\{[{%].*?[%}]\}|<[^>]*>", re.DOTALL)


def main() -> int:
    """Print every finding, one per line; return 1 if there is one."""
    found = [(path.relative_to(CHECKOUT), number, word) for path in files() for number, word in findings(path)]
    print("".join(f"{name}:{number}: {word!r}: {advice(word)}.\n" for name, number, word in found) or "No word is left to replace.")
    return 1 if found else 0


def files() -> Iterator[Path]:
    """Yield the files that people read."""
    for pattern in PLACES:
        for path in sorted(CHECKOUT.glob(pattern)):
            if path.relative_to(CHECKOUT).as_posix() not in SKIPPED and "migrations" not in path.parts:
                yield path


def findings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the word of each finding in one file."""
    for line, text in python_texts(path) if path.suffix == ".py" else [(1, path.read_text())]:
        plain = CODE.sub(lambda code: "\n" * code[0].count("\n"), text)
        for match in BANNED.finditer(plain):
            yield line + plain.count("\n", 0, match.start()), match[0]


def python_texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield comments and the strings that are sentences: those with a space between words."""
    source = path.read_text()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.search(r"\w [a-z]", node.value):
            yield node.lineno, node.value


def advice(word: str) -> str:
    """Return what to write in place of a word."""
    return next(text for pattern, text in WORDS.items() if re.fullmatch(pattern, word, re.IGNORECASE))


if __name__ == "__main__":
    sys.exit(main())
