"""Reject words that CONTRIBUTING, "Language", replaces: in documentation, docstrings, comments, and messages.

It knows words, not sentences, so it does not replace a reader. `words-left.txt` lists how many findings each old file still
has. A file with more findings fails the check; `--write` renews the list.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
LEFT = Path(__file__).with_name("words-left.txt")
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
    """Print each file that has more findings than it may; with ``--list``, print every finding; with ``--write``, renew the list."""
    left = (
        {name: int(number) for number, name in (line.split(maxsplit=1) for line in LEFT.read_text().splitlines())} if LEFT.exists() else {}
    )
    found = {path.relative_to(CHECKOUT).as_posix(): list(findings(path)) for path in files()}
    if "--write" in sys.argv:
        LEFT.write_text("".join(f"{len(lines)} {name}\n" for name, lines in sorted(found.items()) if lines))
        return 0
    listed = "--list" in sys.argv
    bad = {name: lines for name, lines in found.items() if listed or len(lines) > left.get(name, 0)}
    for name, lines in sorted(bad.items()):
        print("".join(f"{name}:{number}: {word!r}: {advice(word)}.\n" for number, word in lines), end="")
    print(f"{sum(map(len, found.values()))} words are left to replace; {LEFT.name} allows {sum(left.values())}.")
    return 1 if bad and not listed else 0


def files() -> Iterator[Path]:
    """Yield the files that people read."""
    for pattern in PLACES:
        for path in sorted(CHECKOUT.glob(pattern)):
            if path.relative_to(CHECKOUT).as_posix() not in SKIPPED and "migrations" not in path.parts:
                yield path


def findings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the word of each finding in one file."""
    for line, text in python_texts(path) if path.suffix == ".py" else [(1, path.read_text())]:
        for match in BANNED.finditer(CODE.sub(lambda code: "\n" * code[0].count("\n"), text)):
            yield line + text.count("\n", 0, match.start()), match[0]


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
